# Merging, Stochastic Attention, gates, selected blocks.
set(SA_SCENE sa/scene.c)
flymask_test(merge)
flymask_test(partial)
flymask_test(stochastic SOURCES ${SA_SCENE} LIBRARIES test_cli_files)
flymask_references(stochastic)
flymask_test(stochastic_errors SOURCES ${SA_SCENE} LIBRARIES test_cli_files)
flymask_test(moba SOURCES ${SA_SCENE} LIBRARIES test_cli_files)
flymask_references(moba)
flymask_test(moba_packed SOURCES ${SA_SCENE} LIBRARIES test_cli_files)
flymask_test(mechanisms SOURCES ${SA_SCENE} LIBRARIES test_cli_files)
flymask_references(mechanisms)
flymask_test(gated SOURCES ${SA_SCENE} LIBRARIES test_cli_files)

# What the mechanisms cost: ninja bench_mechanisms
add_executable(bench_mechanisms EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/mechanisms.c)
target_compile_definitions(bench_mechanisms PRIVATE _GNU_SOURCE FLYMASK_SOURCE="${PROJECT_SOURCE_DIR}")
target_link_libraries(bench_mechanisms PRIVATE flymask_static)
