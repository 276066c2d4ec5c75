/* SPDX-License-Identifier: MIT
 *
 * plan.c - a layer that runs often: plan once, then run with nothing but
 * pointers. Runs of a plan allocate nothing and read no text.
 *
 *     cc plan.c $(pkg-config --cflags --libs ogive) -o plan && ./plan
 */
#include <ogive.h>

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, WIDTH = 32 };

static float x[BATCH][WIDTH], w[WIDTH], b[WIDTH], y[BATCH][WIDTH];

/* Called when the formula is wrong, too: says where. */
static void print_error(const char *text, const ogive_error *error)
{
    fprintf(stderr, "error: %s\n", error->message);
    if (error->offset >= 0)
        fprintf(stderr, "    %s\n    %*s^\n", text, (int)error->offset, "");
}

int main(void)
{
    const char *text = "z = layer_norm(x, (32,), w, b); z * sigmoid(z)";
    ogive_formula *formula = NULL;
    ogive_plan *plan = NULL;
    void *workspace = NULL;
    ogive_error error;
    int failed = 1;

    if (ogive_formula_create(text, OGIVE_TEXT, &formula, &error))
        goto out;

    /* Only shapes and types matter to a plan, so data may be NULL. */
    int64_t x_shape[] = {BATCH, WIDTH}, w_shape[] = {WIDTH};
    DLDataType float32 = {kDLFloat, 32, 1};
    DLDevice cpu = {kDLCPU, 0};
    DLTensor x_tensor = {NULL, cpu, 2, float32, x_shape, NULL, 0};
    DLTensor w_tensor = {NULL, cpu, 1, float32, w_shape, NULL, 0};
    DLTensor b_tensor = {NULL, cpu, 1, float32, w_shape, NULL, 0};
    const DLTensor *inputs[] = {&x_tensor, &w_tensor, &b_tensor};
    ogive_options options = {.size = sizeof options, .threads = 2};
    if (ogive_plan_create(formula, inputs, 3, NULL, 0, &options, &plan, &error))
        goto out;

    const DLTensor *result = ogive_plan_result(plan, 0);
    printf("result: %d dims, (%lld, %lld)\n", (int)result->ndim, (long long)result->shape[0],
           (long long)result->shape[1]);

    size_t bytes = ogive_plan_workspace(plan);
    if (bytes) {
        workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (!workspace) {
            fprintf(stderr, "error: no memory\n");
            failed = 2;
            goto out;
        }
    }

    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < BATCH * WIDTH; i++)
            x[i / WIDTH][i % WIDTH] = (float)((i * 7 + step) % 13) - 6;
        for (int i = 0; i < WIDTH; i++)
            w[i] = 1 + (float)i / WIDTH;
        const void *in[] = {x, w, b};
        void *out[] = {y};
        if (ogive_plan_run(plan, in, out, workspace, NULL, &error))
            goto out;
        printf("step %d: %.6f ... %.6f\n", step, y[0][0], y[BATCH - 1][WIDTH - 1]);
    }
    failed = 0;

out:
    if (failed == 1)
        print_error(text, &error);
    free(workspace);
    ogive_plan_release(plan);
    ogive_formula_release(formula);
    return failed != 0;
}
