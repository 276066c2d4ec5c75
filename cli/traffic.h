/* SPDX-License-Identifier: MIT
 *
 * traffic.h - what a plan must move and compute at least, and the least time that takes on its
 * device.
 */
#ifndef OGIVE_CLI_TRAFFIC_H
#define OGIVE_CLI_TRAFFIC_H

#include "failure.h"
#include "request.h"

typedef struct {
    size_t kernels;
    double read, written; /* bytes that must move */
    double operations;    /* functions and sums of elements; a product of k is 2 k */
    double limit;         /* bytes per second; 0: not known */
    double floor;         /* seconds, by memory and products; 0: not known */
    bool has_product;
    bool multiplies; /* products take longer than memory */
    int32_t threads; /* that it was measured with; 0: by a GPU's bus and clock */
} traffic;

/* Each kernel's own bytes and operations. */
bool traffic_count(const ogive_plan *plan, traffic *out, failure *why);
/* Fills limit, by measuring the CPU's memory for so many seconds, and floor. */
bool traffic_limit(const request *r, double seconds, traffic *t, failure *why);
/* "1 kernel, 134.2 MB, 100.7 MFLOP, at least 6.90 ms (memory)". */
void traffic_line(const request *r, const traffic *t, char *buffer, size_t capacity);

#endif
