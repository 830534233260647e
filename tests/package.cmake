# What a user gets: exported symbols, dependencies, an installation that other projects can build with.
if(NOT FLYMASK_SANITIZE) # whose own symbols would be all over
  add_test(NAME package.symbols COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/package/symbols.sh
  $<TARGET_FILE:flymask_shared> $<TARGET_FILE:flymask_runtime_shared> $<TARGET_FILE:flymask_static> $<TARGET_FILE:flymask_runtime_static>)
  set_tests_properties(package.symbols PROPERTIES LABELS quick TIMEOUT 300)
endif()
set(flags ${CMAKE_C_FLAGS})
if(FLYMASK_SANITIZE)
  string(APPEND flags " -fsanitize=${FLYMASK_SANITIZE}")
endif()
add_test(NAME package.install COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/package/install.sh
  ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${CMAKE_C_COMPILER} "${flags}")
set_tests_properties(package.install PROPERTIES LABELS quick TIMEOUT 300)
