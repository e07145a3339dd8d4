/* A simulated NVML: libnvidia-ml.so.1 that answers from a state file, under NVIDIA's own nvidia-smi.
 *
 * A line of the file is `GPU KEY VALUE…`: GPU is an index, or - for the system. KEY is the name of an NVML function
 * without nvmlDeviceGet, nvmlSystemGet and _vN, with its scalar arguments: `0 ClockInfo.1 1980`. VALUE is one number
 * for each place that the function fills, or a text. `!15` is NVML's error 15. Functions without a line are not
 * supported. A setter changes the line of its getter; a line `0 SetComputeMode !4` refuses it. `2 Lost 1`: GPU 2 fell
 * off the bus, and no function reaches it; `2 Gone 1`: the driver gives no handle for it either. Of a key's lines the
 * first counts.
 *
 * functions.c, which build.py makes of nvml.h, has every other function. The functions here fill structures, or keep a
 * rule of the hardware.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "library.h"

#define GPUS 64
#define KEY 80
#define ALL_IDS 255
#define TABLE_ENTRIES 1024
#define MIB 1048576ULL

struct nvmlDevice_st {
    int index;
};

typedef struct {
    int gpu;
    char *key, *value;
} Line;

static struct nvmlDevice_st devices[GPUS];
static Line *lines;
static char *text;
static size_t line_count;
static int gpu_count;
static struct timespec changed_at;

static const char *state_path(void) {
    const char *path = getenv("NODECTL_NVML_STATE");
    return path ? path : "/var/lib/nodectl-lab/nvml";
}

static void parse(void) {
    size_t room = 0;
    line_count = gpu_count = 0;
    for (char *place, *row = strtok_r(text, "\n", &place); row; row = strtok_r(NULL, "\n", &place)) {
        char *key = strchr(row, ' '), *value = key ? strchr(key + 1, ' ') : NULL;
        if (!value)
            continue;
        *key++ = *value++ = 0;
        if (line_count == room)
            lines = realloc(lines, (room = room ? 2 * room : 1024) * sizeof *lines);
        lines[line_count] = (Line){*row == '-' ? -1 : atoi(row), key, value};
        if (lines[line_count].gpu >= gpu_count && lines[line_count].gpu < GPUS)
            gpu_count = lines[line_count].gpu + 1;
        line_count++;
    }
}

static int read_state(int file) {
    struct stat status;
    if (fstat(file, &status))
        return 0;
    free(text);
    text = calloc(1, (size_t)status.st_size + 1);
    ssize_t size = pread(file, text, (size_t)status.st_size, 0);
    changed_at = status.st_mtim;
    parse();
    return size >= 0;
}

/* Read the file again if it was written since. */
static int refresh(void) {
    struct stat status;
    if (stat(state_path(), &status))
        return 0;
    if (text && !memcmp(&status.st_mtim, &changed_at, sizeof changed_at))
        return 1;
    int file = open(state_path(), O_RDONLY | O_CLOEXEC), done = 0;
    if (file >= 0) {
        flock(file, LOCK_SH);
        done = read_state(file);
        close(file);
    }
    return done;
}

static Line *find(int gpu, const char *key) {
    for (size_t number = 0; number < line_count; number++)
        if (lines[number].gpu == gpu && !strcmp(lines[number].key, key))
            return &lines[number];
    return NULL;
}

static int is_device(const void *pointer) {
    return pointer >= (void *)devices && pointer < (void *)(devices + GPUS);
}

/* The value of a key; its error, or NOT_SUPPORTED if it has no line. A NULL device is the system. */
static nvmlReturn_t look(nvmlDevice_t device, const char *key, const char **value) {
    if (device && !is_device(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    refresh();
    if (device && (find(device->index, "Lost") || find(device->index, "Gone")))
        return NVML_ERROR_GPU_IS_LOST;
    Line *line = find(device ? device->index : -1, key);
    if (!line)
        return NVML_ERROR_NOT_SUPPORTED;
    *value = line->value;
    return *line->value == '!' ? (nvmlReturn_t)atoi(line->value + 1) : NVML_SUCCESS;
}

static void spell(char *full, const char *key, int count, const long long *arguments) {
    int size = snprintf(full, KEY, "%s", key);
    for (int number = 0; number < count && size < KEY; number++)
        size += snprintf(full + size, (size_t)(KEY - size), ".%lld", arguments[number]);
}

nvmlReturn_t lab_numbers(nvmlDevice_t device, const char *key, int ins, const long long *in, int outs, const Out *out) {
    char full[KEY];
    const char *value;
    spell(full, key, ins, in);
    nvmlReturn_t result = look(device, full, &value);
    for (int number = 0; number < outs && result == NVML_SUCCESS; number++) {
        char *end;
        long long found = strtoll(value, &end, 0);
        if (end == value)
            return NVML_ERROR_NOT_SUPPORTED;
        value = end;
        if (out[number].place)
            memcpy(out[number].place, &found, out[number].size);
    }
    return result;
}

nvmlReturn_t lab_text(nvmlDevice_t device, const char *key, int ins, const long long *in, char *buffer, unsigned room) {
    char full[KEY];
    const char *value;
    spell(full, key, ins, in);
    nvmlReturn_t result = look(device, full, &value);
    if (result == NVML_SUCCESS && strlen(value) >= room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (result == NVML_SUCCESS)
        strcpy(buffer, value);
    return result;
}

/* Replace a line's value, in the file too. */
static nvmlReturn_t put(nvmlDevice_t device, const char *key, const char *value) {
    int file = open(state_path(), O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NVML_ERROR_NO_PERMISSION;
    flock(file, LOCK_EX);
    FILE *stream;
    Line *line;
    nvmlReturn_t result = NVML_ERROR_NOT_SUPPORTED;
    if (read_state(file) && (line = find(device->index, key)) && (stream = fdopen(dup(file), "r+"))) {
        line->value = (char *)value;
        for (size_t number = 0; number < line_count; number++) {
            fprintf(stream, lines[number].gpu < 0 ? "-" : "%d", lines[number].gpu);
            fprintf(stream, " %s %s\n", lines[number].key, lines[number].value);
        }
        fflush(stream);
        result = ftruncate(file, ftell(stream)) ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
        fclose(stream);
    }
    close(file);
    free(text);
    text = NULL;
    return result;
}

static nvmlReturn_t refused(nvmlDevice_t device, const char *key) {
    char setter[KEY];
    const char *value;
    if (!is_device(device))
        return NVML_ERROR_NOT_SUPPORTED;
    snprintf(setter, KEY, "Set%s", key);
    nvmlReturn_t result = look(device, setter, &value);
    if (result != NVML_ERROR_NOT_SUPPORTED || find(device->index, setter))
        return result;
    return look(device, key, &value);
}

nvmlReturn_t lab_set(nvmlDevice_t device, const char *key, int count, const long long *numbers) {
    char value[KEY] = "";
    nvmlReturn_t result = refused(device, key);
    for (int number = 0, size = 0; number < count; number++)
        size += snprintf(value + size, (size_t)(KEY - size), "%s%lld", number ? " " : "", numbers[number]);
    return result == NVML_SUCCESS ? put(device, key, value) : result;
}

static nvmlReturn_t number_of(nvmlDevice_t device, const char *key, long long *numbers, int count) {
    Out out[8];
    for (int number = 0; number < count; number++)
        out[number] = (Out){numbers + number, sizeof *numbers};
    return lab_numbers(device, key, 0, NULL, count, out);
}

/* ---- start, end, handles ---- */

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    for (int number = 0; number < GPUS; number++)
        devices[number].index = number;
    return refresh() ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }

const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const words[] = {
        [NVML_SUCCESS] = "Success",
        [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
        [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
        [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
        [NVML_ERROR_NOT_FOUND] = "Not Found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [NVML_ERROR_TIMEOUT] = "Timeout",
        [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
        [NVML_ERROR_RESET_REQUIRED] = "GPU requires reset",
        [NVML_ERROR_IN_USE] = "In use by another client",
    };
    unsigned number = (unsigned)result;
    return number < sizeof words / sizeof *words && words[number] ? words[number] : "Unknown Error";
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    refresh();
    *count = (unsigned)gpu_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    if (!refresh() || index >= (unsigned)gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[index];
    return find((int)index, "Gone") ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

static nvmlReturn_t handle_by(const char *key, const char *wanted, nvmlDevice_t *device) {
    refresh();
    for (int number = 0; number < gpu_count; number++) {
        Line *line = find(number, key);
        if (line && !strcasecmp(line->value, wanted))
            return nvmlDeviceGetHandleByIndex_v2((unsigned)number, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return handle_by("UUID", uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return handle_by("Serial", serial, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device) {
    char full[KEY];
    unsigned domain, number, slot;
    if (sscanf(bus, "%x:%x:%x", &domain, &number, &slot) != 3)
        return NVML_ERROR_NOT_FOUND;
    snprintf(full, KEY, "%08X:%02X:%02X.0", domain, number, slot);
    return handle_by("BusId", full, device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    if (!is_device(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = (unsigned)device->index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    const char *bus;
    long long ids[2] = {0};
    if (!is_device(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    Line *line = refresh() ? find(device->index, "BusId") : NULL;  /* PCI knows a lost GPU, too */
    if (!line)
        return NVML_ERROR_NOT_SUPPORTED;
    bus = line->value;
    memset(pci, 0, sizeof *pci);
    sscanf(bus, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    number_of(device, "PciIds", ids, 2);
    pci->pciDeviceId = (unsigned)ids[0];
    pci->pciSubSystemId = (unsigned)ids[1];
    snprintf(pci->busId, sizeof pci->busId, "%s", bus);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04x:%02x:%02x.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *info) {
    nvmlPciInfo_t pci;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &pci);
    if (result != NVML_SUCCESS)
        return result;
    info->domain = pci.domain, info->bus = pci.bus, info->device = pci.device;
    info->pciDeviceId = pci.pciDeviceId, info->pciSubSystemId = pci.pciSubSystemId;
    info->baseClass = 3, info->subClass = 2;
    memcpy(info->busId, pci.busId, sizeof info->busId);
    return result;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    *is_mig = 0;
    return is_device(device) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* ---- structures of numbers ---- */

#define FILLED(FUNCTION, TYPE, KEY_, ELEMENT, COUNT)                                        \
    nvmlReturn_t FUNCTION(nvmlDevice_t device, TYPE *filled) {                              \
        long long numbers[COUNT];                                                           \
        nvmlReturn_t result = number_of(device, KEY_, numbers, COUNT);                      \
        for (int number = 0; number < (COUNT) && result == NVML_SUCCESS; number++)          \
            ((ELEMENT *)filled)[number] = (ELEMENT)numbers[number];                         \
        return result;                                                                      \
    }

FILLED(nvmlDeviceGetUtilizationRates, nvmlUtilization_t, "UtilizationRates", unsigned, 2)
FILLED(nvmlDeviceGetFBCStats, nvmlFBCStats_t, "FBCStats", unsigned, 3)
FILLED(nvmlDeviceGetRowRemapperHistogram, nvmlRowRemapperHistogramValues_t, "RowRemapperHistogram", unsigned, 5)

/* MemoryInfo: total, reserved and used MiB; BAR1MemoryInfo: total and used */
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info) {
    long long mib[3];
    nvmlReturn_t result = number_of(device, "MemoryInfo", mib, 3);
    if (result != NVML_SUCCESS)
        return result;
    info->total = MIB * (unsigned long long)mib[0];
    info->reserved = MIB * (unsigned long long)mib[1];
    info->used = MIB * (unsigned long long)mib[2];
    info->free = info->total - info->reserved - info->used;
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info) {
    nvmlMemory_v2_t all;
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(device, &all);
    if (result == NVML_SUCCESS)
        info->total = all.total, info->used = all.reserved + all.used, info->free = all.free;
    return result;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *info) {
    long long mib[2];
    nvmlReturn_t result = number_of(device, "BAR1MemoryInfo", mib, 2);
    if (result != NVML_SUCCESS)
        return result;
    info->bar1Total = MIB * (unsigned long long)mib[0];
    info->bar1Used = MIB * (unsigned long long)mib[1];
    info->bar1Free = info->bar1Total - info->bar1Used;
    return result;
}

/* SramEccErrorStatus: uncorrectable SRAM errors since boot and ever, and whether their threshold is exceeded */
nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *status) {
    long long numbers[3];
    nvmlReturn_t result = number_of(device, "SramEccErrorStatus", numbers, 3);
    if (result != NVML_SUCCESS)
        return result;
    memset(&status->aggregateUncParity, 0, sizeof *status - offsetof(nvmlEccSramErrorStatus_t, aggregateUncParity));
    status->volatileUncSecDed = (unsigned long long)numbers[0];
    status->aggregateUncSecDed = status->aggregateUncBucketOther = (unsigned long long)numbers[1];
    status->bThresholdExceeded = (unsigned)numbers[2];
    return result;
}

/* GpuFabricInfo: state, status, clique; the cluster's id is zero, and no health is known */
nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    long long numbers[3];
    nvmlReturn_t result = number_of(device, "GpuFabricInfo", numbers, 3);
    if (result != NVML_SUCCESS)
        return result;
    memset(info, 0, sizeof *info);
    info->state = (nvmlGpuFabricState_t)numbers[0];
    info->status = (nvmlReturn_t)numbers[1];
    info->cliqueId = (unsigned)numbers[2];
    return result;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
    nvmlGpuFabricInfo_t plain;
    nvmlReturn_t result = nvmlDeviceGetGpuFabricInfo(device, &plain);
    if (result == NVML_SUCCESS) {
        memset(info->clusterUuid, 0, sizeof info->clusterUuid);
        info->state = plain.state;
        info->status = plain.status;
        info->cliqueId = plain.cliqueId;
        info->healthMask = 0;
    }
    return result;
}

/* ViolationStatus.N: nanoseconds */
nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *time) {
    memset(time, 0, sizeof *time);
    return lab_numbers(device, "ViolationStatus", 1, (long long[]){policy}, 1, (Out[]){{&time->violationTime, 8}});
}

/* ---- lists ---- */

/* A list's numbers; a caller that only asks for the count has no place for them. */
static nvmlReturn_t list(nvmlDevice_t device, const char *key, unsigned *count, unsigned *place) {
    const char *value;
    nvmlReturn_t result = look(device, key, &value);
    unsigned room = *count;
    if (result != NVML_SUCCESS)
        return result;
    *count = 0;
    for (char *end; ; value = end) {
        unsigned found = (unsigned)strtoul(value, &end, 0);
        if (end == value)
            break;
        if (place && *count < room)
            place[*count] = found;
        ++*count;
    }
    return place && *count <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count, unsigned *clocks) {
    return list(device, "SupportedMemoryClocks", count, clocks);
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory_mhz, unsigned *count,
                                                  unsigned *clocks) {
    (void)memory_mhz;
    return list(device, "SupportedGraphicsClocks", count, clocks);
}

/* RetiredPages.N: their number */
nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned *count,
                                          unsigned long long *addresses, unsigned long long *times) {
    unsigned room = *count;
    nvmlReturn_t result = lab_numbers(device, "RetiredPages", 1, (long long[]){cause}, 1, (Out[]){{count, 4}});
    if (result != NVML_SUCCESS || !*count)
        return result;
    if (!addresses || room < *count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned number = 0; number < *count; number++) {
        addresses[number] = 4096ULL * (number + 1);
        if (times)
            times[number] = 0;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned *count,
                                       unsigned long long *addresses) {
    return nvmlDeviceGetRetiredPages_v2(device, cause, count, addresses, NULL);
}

#define NO_PROCESS(FUNCTION)                                                                  \
    nvmlReturn_t FUNCTION(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) {   \
        (void)infos;                                                                          \
        *count = 0;                                                                           \
        return is_device(device) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;                \
    }

NO_PROCESS(nvmlDeviceGetComputeRunningProcesses_v3)
NO_PROCESS(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESS(nvmlDeviceGetMPSComputeRunningProcesses_v3)

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned *count) { return *count = 0, NVML_SUCCESS; }
nvmlReturn_t nvmlUnitGetCount(unsigned *count) { return *count = 0, NVML_SUCCESS; }
nvmlReturn_t nvmlSystemGetHicVersion(unsigned *count, nvmlHwbcEntry_t *entries) {
    (void)entries;
    return *count = 0, NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    static int events;
    *set = (nvmlEventSet_t)&events;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) { return (void)set, NVML_SUCCESS; }

/* ---- places of processors, links between GPUs ---- */

/* A list such as 0-31,64 into bits */
static nvmlReturn_t bits(nvmlDevice_t device, const char *key, unsigned words, unsigned long *set) {
    const char *value;
    nvmlReturn_t result = look(device, key, &value);
    memset(set, 0, words * sizeof *set);
    for (char *end; result == NVML_SUCCESS && *value; value = *end ? end + 1 : end) {
        unsigned long first = strtoul(value, &end, 10), last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        for (; first <= last && first / 64 < words; first++)
            set[first / 64] |= 1UL << first % 64;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned words, unsigned long *set,
                                                 nvmlAffinityScope_t scope) {
    (void)scope;
    return bits(device, "CpuAffinity", words, set);
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned words, unsigned long *set) {
    return bits(device, "CpuAffinity", words, set);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned words, unsigned long *set,
                                         nvmlAffinityScope_t scope) {
    (void)scope;
    return bits(device, "MemoryAffinity", words, set);
}

/* Topology.N: 0 PIX, 1 PXB, 2 PHB, 3 NODE, 4 SYS; 4 + n: n NVLinks */
static nvmlReturn_t between(nvmlDevice_t one, nvmlDevice_t other, const char *key, void *place) {
    if (!is_device(other))
        return NVML_ERROR_INVALID_ARGUMENT;
    return lab_numbers(one, key, 1, (long long[]){other->index}, 1, (Out[]){{place, 4}});
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level) {
    unsigned found;
    nvmlReturn_t result = between(one, other, "Topology", &found);
    if (result == NVML_SUCCESS)
        *level = found > 3 ? NVML_TOPOLOGY_SYSTEM : (nvmlGpuTopologyLevel_t)(NVML_TOPOLOGY_SINGLE + 10 * found);
    return result;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t index,
                                    nvmlGpuP2PStatus_t *status) {
    (void)index;
    return between(one, other, "P2PStatus", status);
}

/* ---- field values ---- */

static const struct {
    unsigned id;
    const char *key;
    int place;
} aliases[] = {
    {NVML_FI_DEV_REMAPPED_COR, "RemappedRows", 0},
    {NVML_FI_DEV_REMAPPED_UNC, "RemappedRows", 1},
    {NVML_FI_DEV_REMAPPED_PENDING, "RemappedRows", 2},
    {NVML_FI_DEV_REMAPPED_FAILURE, "RemappedRows", 3},
    {NVML_FI_DEV_POWER_AVERAGE, "PowerUsage", 0},
    {NVML_FI_DEV_POWER_INSTANT, "PowerUsage", 0},
    {NVML_FI_DEV_POWER_MIN_LIMIT, "PowerManagementLimitConstraints", 0},
    {NVML_FI_DEV_POWER_MAX_LIMIT, "PowerManagementLimitConstraints", 1},
    {NVML_FI_DEV_POWER_DEFAULT_LIMIT, "PowerManagementDefaultLimit", 0},
    {NVML_FI_DEV_POWER_CURRENT_LIMIT, "PowerManagementLimit", 0},
    {NVML_FI_DEV_POWER_REQUESTED_LIMIT, "PowerManagementLimit", 0},
};

/* Field.ID.SCOPE, else Field.ID, else the same value under another name (of the GPU alone, scope 0) */
static nvmlReturn_t field(nvmlDevice_t device, unsigned id, unsigned scope, long long *number) {
    Out out = {number, sizeof *number};
    nvmlReturn_t result = lab_numbers(device, "Field", 2, (long long[]){id, scope}, 1, &out);
    if (result == NVML_ERROR_NOT_SUPPORTED)
        result = lab_numbers(device, "Field", 1, (long long[]){id}, 1, &out);
    for (size_t row = 0; row < sizeof aliases / sizeof *aliases; row++)
        if (aliases[row].id == id && !scope) {
            long long numbers[4];
            result = number_of(device, aliases[row].key, numbers, aliases[row].place + 1);
            *number = numbers[aliases[row].place];
        }
    return result;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    if (!is_device(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int row = 0; row < count; row++) {
        long long number = 0;
        values[row].nvmlReturn = field(device, values[row].fieldId, values[row].scopeId, &number);
        values[row].valueType = number < 0 ? NVML_VALUE_TYPE_SIGNED_INT : NVML_VALUE_TYPE_UNSIGNED_INT;
        values[row].value.sllVal = number;
    }
    return NVML_SUCCESS;
}

/* NvLinkCapability and the like: links by the fields */
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnableState_t *active) {
    long long number = 0;
    nvmlReturn_t result = field(device, NVML_FI_DEV_NVLINK_GET_STATE, link, &number);
    *active = (nvmlEnableState_t)number;
    return result;
}

/* ---- setters with rules ---- */

nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned limit_mw) {
    long long range[2];
    nvmlReturn_t result = number_of(device, "PowerManagementLimitConstraints", range, 2);
    if (result == NVML_SUCCESS && (limit_mw < range[0] || limit_mw > range[1]))
        result = NVML_ERROR_INVALID_ARGUMENT;
    return result == NVML_SUCCESS ? lab_set(device, "PowerManagementLimit", 1, (long long[]){limit_mw}) : result;
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, nvmlPowerValue_v2_t *power) {
    return nvmlDeviceSetPowerManagementLimit(device, power->powerValueMw);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *limit_mw) {
    return lab_numbers(device, "PowerManagementLimit", 0, NULL, 1, (Out[]){{limit_mw, sizeof *limit_mw}});
}

/* what ECC and MIG are after the next boot or reset */
static nvmlReturn_t set_pending(nvmlDevice_t device, const char *key, long long mode, int at_once) {
    long long now[2];
    nvmlReturn_t result = number_of(device, key, now, 2);
    return result == NVML_SUCCESS ? lab_set(device, key, 2, (long long[]){at_once ? mode : now[0], mode}) : result;
}

nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, nvmlEnableState_t mode) {
    return set_pending(device, "EccMode", mode, 0);
}

nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned mode, nvmlReturn_t *activation) {
    *activation = NVML_SUCCESS;
    return set_pending(device, "MigMode", mode, 1);
}

/* A clock cannot be locked above the card's maximum. `0 0` is not locked. */
static nvmlReturn_t lock(nvmlDevice_t device, const char *key, nvmlClockType_t type, unsigned low, unsigned high) {
    unsigned most;
    nvmlReturn_t result = lab_numbers(device, "MaxClockInfo", 1, (long long[]){type}, 1, (Out[]){{&most, 4}});
    if (result == NVML_SUCCESS && (low > high || high > most))
        result = NVML_ERROR_INVALID_ARGUMENT;
    return result == NVML_SUCCESS ? lab_set(device, key, 2, (long long[]){low, high}) : result;
}

nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned low, unsigned high) {
    return lock(device, "GpuLockedClocks", NVML_CLOCK_GRAPHICS, low, high);
}

nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device) {
    return lab_set(device, "GpuLockedClocks", 2, (long long[]){0, 0});
}

nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned low, unsigned high) {
    return lock(device, "MemoryLockedClocks", NVML_CLOCK_MEM, low, high);
}

nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device) {
    return lab_set(device, "MemoryLockedClocks", 2, (long long[]){0, 0});
}

/* Whether the clock lies between the lowest and the highest supported one. */
static int spans(nvmlDevice_t device, const char *key, unsigned mhz) {
    unsigned clocks[16], count = 16, low = mhz + 1, high = 0;
    if (list(device, key, &count, clocks) == NVML_SUCCESS)
        for (unsigned number = 0; number < count; number++) {
            low = clocks[number] < low ? clocks[number] : low;
            high = clocks[number] > high ? clocks[number] : high;
        }
    return low <= mhz && mhz <= high;
}

static nvmlReturn_t set_clocks(nvmlDevice_t device, unsigned memory_mhz, unsigned graphics_mhz) {
    nvmlReturn_t result = lab_set(device, "ApplicationsClock.2", 1, (long long[]){memory_mhz});
    return result == NVML_SUCCESS ? lab_set(device, "ApplicationsClock.0", 1, (long long[]){graphics_mhz}) : result;
}

nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned memory_mhz, unsigned graphics_mhz) {
    if (!spans(device, "SupportedMemoryClocks", memory_mhz) || !spans(device, "SupportedGraphicsClocks", graphics_mhz))
        return NVML_ERROR_INVALID_ARGUMENT;
    return set_clocks(device, memory_mhz, graphics_mhz);
}

nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device) {
    long long memory_mhz, graphics_mhz;
    nvmlReturn_t result = number_of(device, "DefaultApplicationsClock.2", &memory_mhz, 1);
    if (result == NVML_SUCCESS)
        result = number_of(device, "DefaultApplicationsClock.0", &graphics_mhz, 1);
    return result == NVML_SUCCESS ? set_clocks(device, (unsigned)memory_mhz, (unsigned)graphics_mhz) : result;
}

/* ---- the private table ---- */

static int is_small(const void *pointer) { return (unsigned long)pointer < 65536; }

/* nvidia-smi passes constants as arguments, too: nothing is written. */
static nvmlReturn_t unsupported(void) { return NVML_ERROR_NOT_SUPPORTED; }

static nvmlReturn_t private_topology(const char *one, const char *other, unsigned *level) {
    nvmlDevice_t first, second;
    if (is_small(one) || is_small(other) || is_small(level))
        return NVML_ERROR_NOT_SUPPORTED;
    if (nvmlDeviceGetHandleByPciBusId_v2(one, &first) || nvmlDeviceGetHandleByPciBusId_v2(other, &second))
        return NVML_ERROR_NOT_FOUND;
    return between(first, second, "Topology", level);
}

static nvmlReturn_t private_number(nvmlDevice_t device, const char *key, unsigned *number) {
    if (!is_device(device) || is_small(number))
        return NVML_ERROR_NOT_SUPPORTED;
    return lab_numbers(device, key, 0, NULL, 1, (Out[]){{number, sizeof *number}});
}

static nvmlReturn_t private_processes(nvmlDevice_t device, unsigned *count) {
    if (!is_device(device) || is_small(count))
        return NVML_ERROR_NOT_SUPPORTED;
    *count = 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t private_host_generation(nvmlDevice_t device, unsigned *generation) {
    return private_number(device, "HostPcieLinkGeneration", generation);
}

static nvmlReturn_t private_margin(nvmlDevice_t device, unsigned *margin_c) {
    return private_number(device, "MarginTemperature", margin_c);
}

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id) {
    static void *entries[TABLE_ENTRIES];
    (void)id;
    entries[0] = (void *)sizeof entries;
    for (int number = 1; number < TABLE_ENTRIES; number++)
        entries[number] = (void *)unsupported;
    entries[23] = (void *)private_topology;
    entries[213] = (void *)private_processes;
    entries[230] = (void *)private_host_generation;
    entries[240] = (void *)private_margin;
    *table = entries;
    return NVML_SUCCESS;
}
