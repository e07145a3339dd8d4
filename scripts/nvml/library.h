/* What functions.c, which is made of nvml.h, calls in library.c. */
typedef struct {
    void *place;
    unsigned long size;
} Out;

nvmlReturn_t lab_numbers(nvmlDevice_t device, const char *key, int ins, const long long *in, int outs, const Out *out);
nvmlReturn_t lab_text(nvmlDevice_t device, const char *key, int ins, const long long *in, char *buffer, unsigned room);
nvmlReturn_t lab_set(nvmlDevice_t device, const char *key, int count, const long long *numbers);
