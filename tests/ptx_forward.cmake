# The CUDA kernels of the forward pass, executed by tests/simcuda. ptx_forward.CASE: one case of the suite.
add_executable(test_ptx_forward test_ptx_forward.c)
target_link_libraries(test_ptx_forward PRIVATE test_support simcuda)
foreach(case tiles masks numbers)
  add_test(NAME ptx_forward.${case} COMMAND test_ptx_forward)
  set_tests_properties(ptx_forward.${case} PROPERTIES LABELS ci TIMEOUT 600
    ENVIRONMENT "CK_RUN_CASE=${case};CK_DEFAULT_TIMEOUT=600;XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
endforeach()

flymask_test(ptx_image)
