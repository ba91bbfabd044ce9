/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes times as text.
 */
#ifndef ATTNKIT_TIME_TEXT_H
#define ATTNKIT_TIME_TEXT_H

enum { FIGURE = 32 };

/* Writes a time with three significant digits, as in "1.42 us". The time must be at least 1 ns and
 * below 999.5 s. */
void time_text(double seconds, char text[FIGURE]);

#endif
