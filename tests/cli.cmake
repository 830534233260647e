# The command. Its own files of arrays are tested alone; the rest runs the command as a user would.
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)

set(CLI_FILES)
foreach(name error file half npy npy_convert npy_header timing)
  list(APPEND CLI_FILES ${PROJECT_SOURCE_DIR}/cli/${name}.c)
endforeach()
add_library(test_cli_files STATIC ${CLI_FILES})
target_include_directories(test_cli_files PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(test_cli_files PRIVATE _GNU_SOURCE)
target_link_libraries(test_cli_files PUBLIC PkgConfig::JANSSON PkgConfig::PNG flymask_static)

flymask_test(npy LIBRARIES test_cli_files)
if(FLYMASK_CLI)
  flymask_test(cli LIBRARIES test_cli_files)
  flymask_test(cli_list LIBRARIES PkgConfig::JANSSON)
  flymask_test(cli_run LIBRARIES test_cli_files)
  add_executable(test_cli_data test_cli_data.c)
  target_link_libraries(test_cli_data PRIVATE test_support test_cli_files)
  flymask_references(cli_data)
  foreach(name cli cli_list cli_run cli_data)
    add_dependencies(test_${name} flymask)
  endforeach()
endif()

# The examples are built and run.
add_subdirectory(${PROJECT_SOURCE_DIR}/examples ${PROJECT_BINARY_DIR}/examples)
add_test(NAME example.first COMMAND example_first)
set(STARTUP_MASKS)
foreach(name causal document sliding_window stochastic)
  list(APPEND STARTUP_MASKS ${PROJECT_SOURCE_DIR}/masks/${name}.c)
endforeach()
add_test(NAME example.startup COMMAND example_startup ${STARTUP_MASKS})
add_test(NAME example.selections COMMAND example_selections ${PROJECT_SOURCE_DIR}/masks/selected_tiles.c)
add_test(NAME example.sorted COMMAND example_sorted)
set_tests_properties(example.first example.startup example.selections example.sorted PROPERTIES LABELS quick TIMEOUT 60
  ENVIRONMENT "XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
set_tests_properties(example.first PROPERTIES PASS_REGULAR_EXPRESSION "1.00 0.00 0.00 0.00 0.00 0.00")
set_tests_properties(example.selections PROPERTIES PASS_REGULAR_EXPRESSION
  "Quest[^\n]*as it should be\nNSA[^\n]*as it should be\nXAttention[^\n]*as it should be\nDSA[^\n]*as it should be")
set_tests_properties(example.sorted PROPERTIES PASS_REGULAR_EXPRESSION
  "Focus[^\n]*as it should be\nSMat[^\n]*as it should be")
set_tests_properties(example.startup PROPERTIES PASS_REGULAR_EXPRESSION "second start: 4 masks.*stochastic.c +[0-9.]+ ms .cache.")
