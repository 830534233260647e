# Backward attention against the double-precision oracle and central differences.
flymask_test(backward_shapes)
flymask_test(backward_rows)
flymask_test(backward_numbers)
flymask_test(backward_errors)
if(FLYMASK_CLI)
  flymask_test(backward_command LIBRARIES test_cli_files)
  add_dependencies(test_backward_command flymask)
endif()
