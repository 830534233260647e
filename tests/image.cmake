# From the verified mask to a bound, callable mask: compilation, images, cache, loaders.
flymask_test(compile)
flymask_test(image)
flymask_test(cache)
flymask_test(bind)
flymask_test(combine)
flymask_test(loader LIBRARIES ${LLVM_LIBRARY})
target_include_directories(test_loader SYSTEM PRIVATE $<TARGET_PROPERTY:flymask_compiler_objects,INCLUDE_DIRECTORIES>)
flymask_test(semantics SECONDS 600)
