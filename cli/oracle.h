/* SPDX-License-Identifier: MIT */
/*
 * Reference values of some unary functions, in double, and the distance of a
 * float32 from such a value in units in the last place.
 */
#ifndef OGIVE_CLI_ORACLE_H
#define OGIVE_CLI_ORACLE_H

/*
 * The function's exact value at x to a few double ULP (2^-28 of a float32's),
 * for float32 x.  Parameters are in the order of the function's arguments
 * after x; NULL where it has none.
 */
typedef double oracle_function(double x, const double *parameters);

/* NULL: the library's float64 is the reference. */
oracle_function *oracle_find(const char *name);

/*
 * |got - want| in units of the float32 nearest to want (2^-149 for subnormals).
 * Infinity counts as 2^128, so that a want at the edge of the range is measured
 * rightly.  INFINITY where only one of them is NaN, want is infinite and got is
 * not, or a zero has the wrong sign; 0 for two NaNs.
 */
double oracle_ulp_f32(float got, double want);

#endif
