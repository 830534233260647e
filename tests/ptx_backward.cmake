# The CUDA kernels of the backward pass, executed by tests/simcuda. ptx_backward.CASE: one case of a suite.
function(flymask_ptx_test name)
  add_executable(test_${name} test_${name}.c)
  target_link_libraries(test_${name} PRIVATE test_support simcuda)
endfunction()

function(flymask_ptx_case name case label)
  add_test(NAME ${name}.${case} COMMAND test_${name})
  set_tests_properties(${name}.${case} PROPERTIES LABELS ${label} TIMEOUT 600
    ENVIRONMENT "CK_RUN_CASE=${case};CK_DEFAULT_TIMEOUT=600;XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
endfunction()

flymask_ptx_test(ptx_backward)
flymask_ptx_case(ptx_backward first ci)
flymask_ptx_case(ptx_backward shapes ci)
flymask_ptx_case(ptx_backward rows ci)
flymask_ptx_test(ptx_numbers)
flymask_ptx_case(ptx_numbers special quick)
flymask_ptx_case(ptx_numbers written ci)
