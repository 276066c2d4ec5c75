/* SPDX-License-Identifier: MIT
 *
 * sigmoid.c - the shortest way: one formula, one call.
 *
 *     cc sigmoid.c $(pkg-config --cflags --libs ogive) -o sigmoid && ./sigmoid
 */
#include <ogive.h>

#include <stdio.h>

int main(void)
{
    float x[2][3] = {{-2, -1, 0}, {1, 2, 3}};
    float y[3] = {10, 20, 30};
    float result[2][3];

    /* Tensors are DLPack's: a pointer, a device, a type, a shape. Strides of NULL
     * mean that the last dim runs fastest, without gaps. */
    int64_t matrix[] = {2, 3}, row[] = {3};
    DLDataType float32 = {kDLFloat, 32, 1};
    DLDevice cpu = {kDLCPU, 0};
    DLTensor x_tensor = {x, cpu, 2, float32, matrix, NULL, 0};
    DLTensor y_tensor = {y, cpu, 1, float32, row, NULL, 0}; /* broadcast over x's rows */
    DLTensor result_tensor = {result, cpu, 2, float32, matrix, NULL, 0};

    /* Inputs come in the order in which the formula first names them: x, then y. */
    const DLTensor *inputs[] = {&x_tensor, &y_tensor};
    const DLTensor *outputs[] = {&result_tensor};

    ogive_formula *formula = NULL;
    ogive_error error;
    if (ogive_formula_create("x * sigmoid(x) + y", OGIVE_TEXT, &formula, &error) ||
        ogive_run(formula, inputs, 2, outputs, 1, NULL, &error)) {
        fprintf(stderr, "error: %s\n", error.message);
        ogive_formula_release(formula);
        return 1;
    }
    ogive_formula_release(formula);

    for (int i = 0; i < 2; i++)
        printf("%9.6f %9.6f %9.6f\n", result[i][0], result[i][1], result[i][2]);
    return 0;
}
