# Operations on block maps, and what a mask's author is told.
flymask_test(map_ops)
flymask_test(map_arrays)
if(FLYMASK_CLI)
  flymask_test(map_command LIBRARIES test_cli_files)
  flymask_test(diagnose)
  add_dependencies(test_map_command flymask)
  add_dependencies(test_diagnose flymask)
endif()
