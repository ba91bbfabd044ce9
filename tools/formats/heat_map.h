/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws attention weights as a picture with a grid of panels. Each head has a panel, with the
 * number of the head above the panel. Rows of a panel are query rows, columns are keys.
 */
#ifndef ATTNKIT_HEAT_MAP_H
#define ATTNKIT_HEAT_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/formats/picture.h"

enum { HEAT_MAP_MAX_HEADS = 1000, HEAT_MAP_MAX_SIDE = 2000 };

struct heat_map {
    const float *weights; /* [heads][rows][keys]; no size is 0 */
    int64_t heads;        /* at most HEAT_MAP_MAX_HEADS */
    int64_t rows;
    int64_t keys;
};

/* Draws the weights. The picture has at most HEAT_MAP_MAX_SIDE pixels each way. If there is no room
 * for all weights, means of blocks of weights are drawn. The darkest colour stands for 0, the
 * brightest colour for the largest weight or mean of the head. Colours follow the square root of
 * weights: with a linear scale, a row that sees many keys would be all dark. NaN is red. Returns
 * false if there is no memory. The caller frees picture->pixels, also if there is no memory. */
bool heat_map_draw(const struct heat_map *map, struct picture *picture);

#endif
