# Backward attention against the double-precision oracle and central differences.
flymask_test(backward_shapes)
