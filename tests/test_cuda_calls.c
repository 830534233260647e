#include "cuda_call.h"
static Suite *make_suite(void) { return suite_create("cuda_calls"); }
FLY_TEST_MAIN(make_suite)
