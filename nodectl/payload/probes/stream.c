/* Copy and triad over arrays that are cut among threads, each thread pinned to a processor and touching its part first.
 *
 * stream BYTES SECONDS REPETITIONS CPU[,CPU...]   ->   lines "copy GB/s GB/s..." and "triad GB/s GB/s...", one a
 * repetition: what it came to on the whole, then each pass, which begins and ends for all threads at once
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COPY, TRIAD, KERNELS, MOST_CPUS = 4096, LEAST_PASSES = 5, MOST_PASSES = 1000 };

static const char *const names[KERNELS] = { "copy", "triad" };
static const double streams[KERNELS] = { 2, 3 };
static size_t elements;
static double seconds;
static int repetitions, count, failed, go_on;
static int cpus[MOST_CPUS];
static double passes[MOST_PASSES];
static pthread_barrier_t barrier;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void pass(int kernel, double *restrict a, const double *restrict b, const double *restrict c, size_t n)
{
    if (kernel == COPY)
        for (size_t i = 0; i < n; i++)
            a[i] = b[i];
    else
        for (size_t i = 0; i < n; i++)
            a[i] = b[i] + 3.0 * c[i];
    __asm__ volatile("" ::: "memory");
}

static void *work(void *argument)
{
    int number = (int)(size_t)argument;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpus[number], &own);
    pthread_setaffinity_np(pthread_self(), sizeof own, &own);
    double *a = malloc(elements * sizeof *a), *b = malloc(elements * sizeof *b), *c = malloc(elements * sizeof *c);
    if (!a || !b || !c)
        failed = 1;
    pthread_barrier_wait(&barrier);
    if (failed)
        return NULL;
    for (size_t i = 0; i < elements; i++) {
        a[i] = 0.0;
        b[i] = 1.0;
        c[i] = 2.0;
    }
    for (int round = 0; round < repetitions * KERNELS; round++) {
        int kernel = round % KERNELS, done = 0;
        double began = 0, last = 0;
        double bytes = streams[kernel] * sizeof *a * elements * count;
        pass(kernel, a, b, c, elements);
        pthread_barrier_wait(&barrier);
        began = last = now();
        do {
            pass(kernel, a, b, c, elements);
            pthread_barrier_wait(&barrier);
            if (number == 0) {
                double time = now();
                if (done < MOST_PASSES)
                    passes[done] = bytes / (time - last) / 1e9;
                done++;
                last = time;
                go_on = time - began < seconds || done < LEAST_PASSES;
            }
            pthread_barrier_wait(&barrier);
        } while (go_on);
        if (number == 0) {
            printf("%s %.6f", names[kernel], done * bytes / (last - began) / 1e9);
            for (int each = 0; each < done && each < MOST_PASSES; each++)
                printf(" %.6f", passes[each]);
            printf("\n");
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST_CPUS];
    if (argc != 5)
        return 2;
    seconds = atof(argv[2]);
    repetitions = atoi(argv[3]);
    for (char *rest = argv[4], *word; count < MOST_CPUS && (word = strsep(&rest, ","));)
        cpus[count++] = atoi(word);
    elements = strtoull(argv[1], NULL, 10) / sizeof(double) / count;
    pthread_barrier_init(&barrier, NULL, count);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(size_t)i)) {
            fprintf(stderr, "cannot start %d threads\n", count);
            exit(1);
        }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    if (failed)
        fprintf(stderr, "not enough memory\n");
    return failed;
}
