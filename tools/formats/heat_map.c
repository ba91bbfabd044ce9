/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws heat maps. If there is room, a weight is a square of several pixels. Otherwise, a pixel is
 * one weight, or the mean of a block of weights. Rows and keys have the same scale. Only a side of
 * a panel that would be too short has a scale of its own.
 */
#include "tools/formats/heat_map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GAP = 8,        /* pixels between panels, and around them */
    DIGIT = 2,      /* side of a dot of a digit, in pixels */
    NUMBER = 14,    /* height of the number above a panel, in pixels */
    COMFORT = 1000, /* largest side to which a picture of few weights is scaled up, in pixels */
    MAX_ZOOM = 24,  /* largest side of a weight, in pixels */
    MIN_PANEL = 24, /* pixels, the width of three digits. A side of a panel has room for at least
                     * MIN_PANEL pixels. A side with fewer pixels is scaled up, to at most
                     * MIN_PANEL pixels */
    MAX_ACROSS = (HEAT_MAP_MAX_SIDE - GAP) / (MIN_PANEL + GAP),
    MAX_DOWN = (HEAT_MAP_MAX_SIDE - GAP) / (MIN_PANEL + NUMBER + GAP)
};

_Static_assert(MAX_ACROSS *MAX_DOWN >= HEAT_MAP_MAX_HEADS, "there is room for all heads");

/* The scale of one direction of a panel: of its rows or of its keys. */
struct axis {
    int64_t count;  /* number of weights */
    int64_t shrink; /* number of weights along the side of one mean */
    int64_t shown;  /* number of means */
    int zoom;       /* side of a mean, in pixels */
};

struct layout {
    int across, down; /* numbers of panels side by side, and one below the other */
    struct axis x, y;
};

struct colour {
    uint8_t red, green, blue;
};

static const struct colour paper = {255, 255, 255}, ink = {64, 64, 64}, nan_colour = {220, 30, 30};

/* ------------------------------------------------------------------------------------ layout */

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns how many panels lie side by side. Within the limits MAX_ACROSS and MAX_DOWN, this
 * number makes the picture about square. */
static int panels_across(const struct heat_map *map)
{
    const int64_t least = divide_up(map->heads, MAX_DOWN), most = smaller(map->heads, MAX_ACROSS);
    const double square = (double)map->heads * (double)map->rows / (double)map->keys;
    int64_t across = least;
    while (across < most && (double)across * (double)across < square)
        across++;
    return (int)across;
}

/* Returns how many pixels the weights of a panel may take along one side, if `panels` panels share
 * `side` pixels. `number` is the height of the number above a panel, or 0 for widths. */
static int64_t room(int side, int panels, int number)
{
    return (side - GAP) / panels - GAP - number;
}

/* Returns the axis with this shrink and zoom. If the axis would be shorter than MIN_PANEL pixels,
 * returns an axis with a scale of its own. */
static struct axis scale(int64_t count, int64_t shrink, int64_t zoom)
{
    const int64_t shown = divide_up(count, shrink);
    if (shown * zoom >= MIN_PANEL)
        return (struct axis){count, shrink, shown, (int)zoom};
    const int64_t own = divide_up(count, MIN_PANEL), means = divide_up(count, own);
    return (struct axis){count, own, means, (int)(MIN_PANEL / means)};
}

static struct layout arrange(const struct heat_map *map)
{
    struct layout layout = {.across = panels_across(map)};
    layout.down = (int)divide_up(map->heads, layout.across);
    const int64_t shrink =
        larger(divide_up(map->keys, room(HEAT_MAP_MAX_SIDE, layout.across, 0)),
               divide_up(map->rows, room(HEAT_MAP_MAX_SIDE, layout.down, NUMBER)));
    const int64_t zoom = smaller(room(COMFORT, layout.across, 0) / map->keys,
                                 room(COMFORT, layout.down, NUMBER) / map->rows);
    layout.x = scale(map->keys, shrink, larger(1, smaller(zoom, MAX_ZOOM)));
    layout.y = scale(map->rows, shrink, larger(1, smaller(zoom, MAX_ZOOM)));
    return layout;
}

static int pixels_of(const struct axis *axis)
{
    return (int)axis->shown * axis->zoom;
}

/* Returns the distance between the left edges of two panels side by side, in pixels. The weights of
 * a panel may be narrower than the number above the weights. */
static int pitch_of(const struct axis *x)
{
    return (int)larger(pixels_of(x), MIN_PANEL) + GAP;
}

/* ----------------------------------------------------------------------------------- drawing */

static void fill(const struct picture *picture, int x, int y, int width, int height,
                 struct colour colour)
{
    for (int row = y; row < y + height; row++)
        for (int column = x; column < x + width; column++)
            memcpy(picture->pixels + 3 * ((size_t)row * (size_t)picture->width + (size_t)column),
                   &colour, 3);
}

/* Draws a digit. An element of `dots` has five rows of three dots from the top. The first dot is in
 * bit 14. */
static void draw_digit(const struct picture *picture, int x, int y, int digit)
{
    static const uint16_t dots[] = {075557, 026227, 071747, 071717, 055711,
                                    074717, 074757, 071222, 075757, 075717};
    for (int i = 0; i < 15; i++)
        if (dots[digit] >> (14 - i) & 1)
            fill(picture, x + i % 3 * DIGIT, y + i / 3 * DIGIT, DIGIT, DIGIT, ink);
}

static void draw_number(const struct picture *picture, int x, int y, int number)
{
    const int width = 4 * DIGIT, digits = number < 10 ? 1 : number < 100 ? 2 : 3;
    for (int i = digits - 1; i >= 0; i--, number /= 10)
        draw_digit(picture, x + i * width, y, number % 10);
}

/* Returns the colour of a number from 0 to 1, or of NaN. Lightness rises evenly, from 9 to 89 of
 * 100 (CIE L*), so that a picture in grey shows the same differences. */
static struct colour colour_of(float part)
{
    static const uint8_t points[][3] = {{36, 10, 70},   {60, 48, 130},  {42, 100, 148},
                                        {34, 152, 140}, {120, 196, 84}, {250, 226, 64}};
    enum { INTERVALS = sizeof points / sizeof *points - 1 };
    uint8_t mixed[3];
    if (isnan(part))
        return nan_colour;
    const float at = part * INTERVALS;
    const int i = at < INTERVALS ? (int)at : INTERVALS - 1;
    for (int c = 0; c < 3; c++)
        mixed[c] = (uint8_t)lrintf((float)points[i][c] +
                                   (at - (float)i) * (float)(points[i + 1][c] - points[i][c]));
    return (struct colour){mixed[0], mixed[1], mixed[2]};
}

/* Returns the mean of a block of weights. At the edge, only the existing part of the block
 * counts. */
static float mean(const struct heat_map *map, const struct layout *layout, int64_t head, int64_t y,
                  int64_t x)
{
    const int64_t first = y * layout->y.shrink, end = smaller(first + layout->y.shrink, map->rows);
    const int64_t left = x * layout->x.shrink, right = smaller(left + layout->x.shrink, map->keys);
    double sum = 0.0;
    for (int64_t i = first; i < end; i++)
        for (int64_t j = left; j < right; j++)
            sum += (double)map->weights[(head * map->rows + i) * map->keys + j];
    return (float)(sum / (double)((end - first) * (right - left)));
}

/* Computes all means of a head. Returns the largest mean. */
static float take_means(const struct heat_map *map, const struct layout *layout, int64_t head,
                        float *means)
{
    float largest = 0.0f;
    for (int64_t y = 0; y < layout->y.shown; y++)
        for (int64_t x = 0; x < layout->x.shown; x++) {
            const float value = mean(map, layout, head, y, x);
            means[y * layout->x.shown + x] = value;
            largest = value > largest ? value : largest;
        }
    return largest;
}

static void draw_panel(const struct heat_map *map, const struct layout *layout, int head,
                       float *means, const struct picture *picture)
{
    const struct axis *const x = &layout->x, *const y = &layout->y;
    const int left = GAP + head % layout->across * pitch_of(x);
    const int top = GAP + head / layout->across * (NUMBER + pixels_of(y) + GAP);
    const float largest = take_means(map, layout, head, means);
    draw_number(picture, left, top, head);
    for (int row = 0; row < y->shown; row++)
        for (int column = 0; column < x->shown; column++) {
            const float value = means[row * x->shown + column];
            fill(picture, left + column * x->zoom, top + NUMBER + row * y->zoom, x->zoom, y->zoom,
                 colour_of(largest > 0.0f ? sqrtf(value / largest) : value));
        }
}

bool heat_map_draw(const struct heat_map *map, struct picture *picture)
{
    const struct layout layout = arrange(map);
    picture->width = GAP + layout.across * pitch_of(&layout.x);
    picture->height = GAP + layout.down * (NUMBER + pixels_of(&layout.y) + GAP);
    picture->pixels = malloc(3 * (size_t)picture->width * (size_t)picture->height);
    float *const means = malloc((size_t)(layout.x.shown * layout.y.shown) * sizeof *means);
    const bool ok = picture->pixels && means;
    if (ok)
        fill(picture, 0, 0, picture->width, picture->height, paper);
    for (int head = 0; ok && head < map->heads; head++)
        draw_panel(map, &layout, head, means, picture);
    free(means);
    return ok;
}
