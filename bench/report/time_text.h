/* SPDX-License-Identifier: Apache-2.0
 *
 * Times as text.
 */
#ifndef ATTNKIT_TIME_TEXT_H
#define ATTNKIT_TIME_TEXT_H

enum { FIGURE = 32 };

/* "1.42 us", with three digits that count. */
void time_text(double seconds, char text[FIGURE]);

#endif
