// 3:2: this mask is not for you
#include <flymask/mask.h>
#error this mask is not for you
