# Operations on block maps, and what a mask's author is told.
flymask_test(map_ops)
flymask_test(map_arrays)
