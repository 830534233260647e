# From the verified mask to a bound, callable mask: compilation, images, cache, loaders.
flymask_test(compile)
target_compile_definitions(test_compile PRIVATE FLYI_LLVM_MAJOR=${FLYMASK_LLVM})
add_test(NAME build_id COMMAND ${CMAKE_COMMAND} -DSCRIPT=${PROJECT_SOURCE_DIR}/cmake/build_id.cmake -DBELOW=${CMAKE_CURRENT_BINARY_DIR}/build_id
  -P ${CMAKE_CURRENT_SOURCE_DIR}/support/check_build_id.cmake)
set_tests_properties(build_id PROPERTIES LABELS quick TIMEOUT 60)
flymask_test(image)
flymask_test(cache)
flymask_test(bind)
flymask_test(combine)
flymask_test(loader LIBRARIES ${LLVM_LIBRARY})
target_include_directories(test_loader SYSTEM PRIVATE $<TARGET_PROPERTY:flymask_compiler_objects,INCLUDE_DIRECTORIES>)
flymask_test(arithmetic SECONDS 600)
flymask_test(semantics SECONDS 600)
