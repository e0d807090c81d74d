// A driver's library as old as go-nvml knows them, with one GPU and no function that came later, and with faults that
// MODE chooses: it stands where NVIDIA's own would, so that the real helper is tested on what a mock in Go cannot show.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ready;

static const char *mode(void) {
	const char *m = getenv("STARLING_TEST_NVML");
	return m ? m : "";
}

// A call before or after a failed Init ends the process, as NVIDIA's does.
static void used(void) {
	if (!ready)
		abort();
}

static int text(char *to, unsigned size, const char *from) {
	used();
	if (strlen(from) >= size)
		return 7; // NVML_ERROR_INSUFFICIENT_SIZE
	strcpy(to, from);
	return 0;
}

int nvmlInit_v2(void) {
	if (!strcmp(mode(), "no-driver"))
		return 9; // NVML_ERROR_DRIVER_NOT_LOADED
	if (!strcmp(mode(), "mismatch"))
		return 18; // NVML_ERROR_LIB_RM_VERSION_MISMATCH
	ready = 1;
	return 0;
}

const char *nvmlErrorString(int code) {
	used();
	return "an error";
}

int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text(to, size, "390.157"); }

int nvmlDeviceGetCount_v2(unsigned *n) {
	used();
	if (!strcmp(mode(), "crash"))
		*(volatile int *)0 = 1;
	if (!strcmp(mode(), "hang"))
		for (;;)
			pause();
	*n = 1;
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **dev) {
	used();
	*dev = (void *)0x1;
	return i == 0 ? 0 : 2;
}

int nvmlDeviceGetUUID(void *dev, char *to, unsigned size) {
	return text(to, size, "GPU-5a1b2c3d-0000-4000-8000-00000000000a");
}

int nvmlDeviceGetName(void *dev, char *to, unsigned size) { return text(to, size, "Tesla V100-SXM2-16GB"); }

int nvmlDeviceGetCudaComputeCapability(void *dev, int *major, int *minor) {
	used();
	*major = 7, *minor = 0;
	return 0;
}

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(void *dev, struct memory *m) {
	used();
	m->total = 16160ull << 20, m->used = 5ull << 20, m->free = m->total - m->used;
	return 0;
}

int nvmlDeviceGetComputeMode(void *dev, int *m) {
	used();
	*m = strcmp(mode(), "exclusive") ? 0 : 3;
	return 0;
}

struct pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(void *dev, struct pci *p) {
	used();
	memset(p, 0, sizeof *p);
	strcpy(p->bus_id, "00000000:01:00.0");
	return 0;
}

int nvmlDeviceGetTemperature(void *dev, int sensor, unsigned *c) {
	used();
	*c = 44;
	return 0;
}

int nvmlDeviceGetPowerUsage(void *dev, unsigned *mw) {
	used();
	return 3; // NVML_ERROR_NOT_SUPPORTED
}
