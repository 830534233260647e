# From a mask's source to the symbolic form.
execute_process(COMMAND ${LLVM_CONFIG} --includedir OUTPUT_VARIABLE LLVM_HEADERS OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
flymask_test(frontend)
flymask_test(frontend_limits)
flymask_test(verify LIBRARIES ${LLVM_LIBRARY})
foreach(name frontend frontend_limits verify)
  target_include_directories(test_${name} SYSTEM PRIVATE ${LLVM_HEADERS})
  target_compile_definitions(test_${name} PRIVATE FLYI_LLVM_MAJOR=${FLYMASK_LLVM})
endforeach()
