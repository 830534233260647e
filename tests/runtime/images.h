/* images.h: images that CMakeLists.txt has built ahead of time. */
#ifndef TEST_IMAGES_H
#define TEST_IMAGES_H

#include <flymask/flymask.h>

/* The bytes of NAME.TYPE.image, to be freed; its kernel. Fail the test where they cannot. */
void *image_read(const char *name, const char *type, size_t *size);
fly_kernel *image_kernel(const char *name, const char *type);

#endif
