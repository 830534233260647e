# Operations on block maps, and what a mask's author is told.
flymask_test(map_ops)
flymask_test(map_arrays)
flymask_test(map_bits)
flymask_test(hostile)
if(FLYMASK_CLI)
  flymask_test(map_command LIBRARIES test_cli_files)
  flymask_test(diagnose)
  add_dependencies(test_map_command flymask)
  add_dependencies(test_diagnose flymask)
endif()

# What maps cost: ninja bench_maps
add_executable(bench_maps EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/maps.c)
target_compile_definitions(bench_maps PRIVATE _GNU_SOURCE FLYMASK_SOURCE="${PROJECT_SOURCE_DIR}")
target_link_libraries(bench_maps PRIVATE test_cli_files)
