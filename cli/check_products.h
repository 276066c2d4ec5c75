/* SPDX-License-Identifier: MIT
 *
 * check_products.h - ogive check products: the errors of float32 products on inputs that are hard
 * for them, against what the plan promises.
 */
#ifndef OGIVE_CLI_CHECK_PRODUCTS_H
#define OGIVE_CLI_CHECK_PRODUCTS_H

#include "failure.h"
#include "ogive.h"

typedef struct {
    bool quick, json, markdown;
    DLDevice device;
    const ogive_options *options;
} product_check;

/* Prints a line for each input and k, and at last whether all is well. */
bool check_products(const product_check *check, failure *why);

#endif
