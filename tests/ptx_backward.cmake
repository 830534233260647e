# The CUDA kernels of the backward pass, executed by tests/simcuda. ptx_backward.CASE: one case of a suite;
# ptx_backward.CASE.whole: all calls of one whose test of CI makes a share of them.
function(flymask_ptx_test name)
  add_executable(test_${name} test_${name}.c)
  target_link_libraries(test_${name} PRIVATE test_support simcuda)
endfunction()

function(flymask_ptx_case name case label)
  set(test ${name}.${case}${ARGV3})
  add_test(NAME ${test} COMMAND test_${name})
  set_tests_properties(${test} PROPERTIES LABELS ${label} TIMEOUT 1200
    ENVIRONMENT "CK_RUN_CASE=${case};CK_DEFAULT_TIMEOUT=1200;XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
endfunction()

flymask_ptx_test(ptx_backward)
flymask_ptx_case(ptx_backward first ci)
flymask_ptx_case(ptx_backward shapes ci)
set_property(TEST ptx_backward.shapes APPEND PROPERTY ENVIRONMENT FLYMASK_TEST_SHARE=8) # with one mask each, and a few more
flymask_ptx_case(ptx_backward shapes nightly .whole)
flymask_ptx_case(ptx_backward rows ci)
flymask_ptx_test(ptx_numbers)
flymask_ptx_case(ptx_numbers special quick)
flymask_ptx_case(ptx_numbers written ci)
