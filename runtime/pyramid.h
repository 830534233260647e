/* pyramid.h: minima and maxima of a captured buffer over index ranges. */
#ifndef FLYMASK_PYRAMID_H
#define FLYMASK_PYRAMID_H

typedef struct flyi_pyramid flyi_pyramid;

void flyi_pyramid_free(flyi_pyramid *pyramid); /* NULL is fine */

#endif
