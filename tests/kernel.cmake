# Forward attention against the double-precision oracle.
flymask_test(attention_shapes)
flymask_test(attention_rows)
flymask_test(attention_numbers)
flymask_test(attention_errors)
