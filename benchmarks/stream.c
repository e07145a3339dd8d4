/* STREAM's four kernels as they are meant to be run: three arrays of doubles, OpenMP threads that touch their own pages
 * first, each kernel timed in each of so many passes, the best pass after the first counts. The result is checked.
 *
 * stream ELEMENTS PASSES   ->   lines "copy GB/s", "scale GB/s", "add GB/s", "triad GB/s"
 */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { KERNELS = 4 };

static const char *const names[KERNELS] = { "copy", "scale", "add", "triad" };
static const double moved[KERNELS] = { 2, 2, 3, 3 };
static double *a, *b, *c;
static size_t count;
static const double scalar = 3.0;

static void run(int kernel)
{
    size_t j;
    switch (kernel) {
    case 0:
#pragma omp parallel for
        for (j = 0; j < count; j++)
            c[j] = a[j];
        break;
    case 1:
#pragma omp parallel for
        for (j = 0; j < count; j++)
            b[j] = scalar * c[j];
        break;
    case 2:
#pragma omp parallel for
        for (j = 0; j < count; j++)
            c[j] = a[j] + b[j];
        break;
    default:
#pragma omp parallel for
        for (j = 0; j < count; j++)
            a[j] = b[j] + scalar * c[j];
    }
}

/* 0 where every element is what so many passes make of the first values */
static int wrong(int passes)
{
    double x = 1, y = 2, z = 0;
    for (int pass = 0; pass < passes; pass++) {
        z = x;
        y = scalar * z;
        z = x + y;
        x = y + scalar * z;
    }
    for (size_t j = 0; j < count; j++)
        if (fabs(a[j] / x - 1) > 1e-12 || fabs(b[j] / y - 1) > 1e-12 || fabs(c[j] / z - 1) > 1e-12)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    count = strtoull(argv[1], NULL, 10);
    int passes = atoi(argv[2]);
    double best[KERNELS] = { 0 };
    size_t bytes = count * sizeof *a;
    if (posix_memalign((void **)&a, 4096, bytes) || posix_memalign((void **)&b, 4096, bytes)
        || posix_memalign((void **)&c, 4096, bytes)) {
        fprintf(stderr, "not enough memory\n");
        return 1;
    }
#pragma omp parallel for
    for (size_t j = 0; j < count; j++) {
        a[j] = 1.0;
        b[j] = 2.0;
        c[j] = 0.0;
    }
    for (int pass = 0; pass < passes; pass++)
        for (int kernel = 0; kernel < KERNELS; kernel++) {
            double began = omp_get_wtime();
            run(kernel);
            double rate = moved[kernel] * bytes / (omp_get_wtime() - began) / 1e9;
            if (pass > 0 && rate > best[kernel])
                best[kernel] = rate;
        }
    if (wrong(passes)) {
        fprintf(stderr, "wrong results\n");
        return 1;
    }
    for (int kernel = 0; kernel < KERNELS; kernel++)
        printf("%s %.6f\n", names[kernel], best[kernel]);
    return 0;
}
