// A library that stands where NVIDIA's would, in tests of how it is called: it keeps memory, and does natively what each
// kernel should do. STARLING_TEST_CUDA says what is wrong with it.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t total = 64 << 20, used;
static struct { void *at; uint64_t size; } areas[64];
static int current;

static int mode(const char *name) {
	const char *m = getenv("STARLING_TEST_CUDA");
	return m && !strcmp(m, name);
}

int cuInit(unsigned flags) { return flags ? 1 : mode("no-driver") ? 999 : 0; }
int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
int cuDeviceGetCount(int *n) { *n = mode("no-device") ? 0 : 1; return 0; }
int cuDeviceGet(int *dev, int ordinal) { *dev = 5; return ordinal ? 101 : 0; }
int cuDeviceGetName(char *name, int size, int dev) { return dev != 5 ? 101 : (snprintf(name, size, "NVIDIA Stand-In\n"), 0); }
int cuDeviceGetUuid_v2(uint8_t *uuid, int dev) {
	for (int i = 0; i < 16; i++) uuid[i] = i;
	return dev != 5 ? 101 : 0;
}
int cuDeviceGetAttribute(int *v, int attribute, int dev) {
	if (dev != 5) return 101;
	if (attribute == 20) return *v = mode("exclusive") ? 3 : mode("prohibited") ? 2 : 0, 0;
	*v = attribute == 75 ? (mode("ancient") ? 5 : 8) : attribute == 76 ? 6 : -1;
	return *v < 0;
}
int cuDevicePrimaryCtxRetain(void **ctx, int dev) { *ctx = &current; return dev != 5 ? 101 : 0; }
int cuCtxSetCurrent(void *ctx) { current = ctx == &current; return !current; }
int cuStreamCreate(void **stream, unsigned flags) { *stream = &used; return flags != 1 || !current; }
int cuStreamSynchronize(void *stream) { return stream != &used || !current; }

int cuModuleLoadDataEx(void **module, const char *image, unsigned n, const int *names, void **values) {
	if (!current || strncmp(image, ".version", 8) || !strstr(image, ".target sm_") || n != 4) return 200;
	char *error = 0, *info = 0;
	uint64_t size = 0, told = 0;
	for (unsigned i = 0; i < n; i++) {
		if (names[i] == 3) info = values[i];
		if (names[i] == 4) told = (uint64_t)values[i];
		if (names[i] == 5) error = values[i];
		if (names[i] == 6) size = (uint64_t)values[i];
	}
	if (!info || !error || told < 1024 || size < 1024) return 1;
	memset(info, 'i', told - 1);
	memset(error, 0, size);
	if (mode("jit")) {
		snprintf(error, size, "ptxas fatal: not today");
		return 218;
	}
	*module = (void *)image;
	return 0;
}
int cuModuleGetFunction(void **f, void *module, const char *name) {
	*f = strdup(name);
	return module ? 0 : 500;
}
int cuFuncGetAttribute(int *v, int attribute, void *f) {
	*v = attribute == 4 ? 64 : attribute == 3 ? 0 : -1;
	return !f || *v < 0;
}
int cuMemGetInfo_v2(uint64_t *free, uint64_t *all) { *free = total - used; *all = total; return !current; }
int cuMemAlloc_v2(uint64_t *at, uint64_t size) {
	if (size > total - used) return 2;
	for (int i = 0; i < 64; i++)
		if (!areas[i].at) {
			areas[i].at = malloc(size);
			areas[i].size = size;
			used += size;
			*at = (uint64_t)areas[i].at;
			return 0;
		}
	return 2;
}
int cuMemFree_v2(uint64_t at) {
	for (int i = 0; i < 64; i++)
		if (at && areas[i].at == (void *)at) {
			free(areas[i].at);
			areas[i].at = 0;
			used -= areas[i].size;
			return 0;
		}
	return 1;
}
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, uint64_t n, void *stream) {
	memcpy(dst, (void *)src, n);
	return stream != &used;
}
int cuGetErrorName(int r, const char **text) {
	*text = r == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OTHER";
	return 0;
}
int cuGetErrorString(int r, const char **text) {
	*text = r == 2 ? "out of memory" : "something else";
	return 0;
}

#define ROL(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define QUARTER(a, b, c, d) \
	(a += b, d = ROL(d ^ a, 16), c += d, b = ROL(b ^ c, 12), a += b, d = ROL(d ^ a, 8), c += d, b = ROL(b ^ c, 7))

static void chacha8(uint32_t out[16], const uint32_t key[8], uint64_t counter, uint32_t w14, uint32_t w15) {
	uint32_t in[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, x[16];
	memcpy(in + 4, key, 32);
	in[12] = counter, in[13] = counter >> 32, in[14] = w14, in[15] = w15;
	memcpy(x, in, 64);
	for (int r = 0; r < 4; r++) {
		for (int i = 0; i < 4; i++) QUARTER(x[i], x[4 + i], x[8 + i], x[12 + i]);
		for (int i = 0; i < 4; i++) QUARTER(x[i], x[4 + (i + 1) % 4], x[8 + (i + 2) % 4], x[12 + (i + 3) % 4]);
	}
	for (int i = 0; i < 16; i++) out[i] = x[i] + in[i];
}

static uint32_t k256[64];

// The constants are the fractions of the cube roots of the first 64 primes.
static void constants(void) {
	for (int n = 0, p = 2; n < 64; p++) {
		int prime = 1;
		for (int d = 2; d * d <= p; d++) prime &= p % d != 0;
		if (!prime) continue;
		unsigned __int128 lo = 0, hi = (unsigned __int128)8 << 32, target = (unsigned __int128)p << 96;
		while (hi - lo > 1) {
			unsigned __int128 mid = (lo + hi) / 2;
			if (mid * mid * mid <= target) lo = mid; else hi = mid;
		}
		k256[n++] = (uint32_t)lo;
	}
}

static void sha256(uint8_t out[32], const uint8_t *data, int n) {
	uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
	uint8_t m[640] = {0};
	int blocks = (n + 9 + 63) / 64;
	memcpy(m, data, n);
	m[n] = 0x80;
	m[blocks * 64 - 2] = n * 8 >> 8;
	m[blocks * 64 - 1] = n * 8;
	for (int b = 0; b < blocks; b++) {
		uint32_t w[64], v[8];
		for (int i = 0; i < 16; i++)
			w[i] = m[64 * b + 4 * i] << 24 | m[64 * b + 4 * i + 1] << 16 | m[64 * b + 4 * i + 2] << 8 | m[64 * b + 4 * i + 3];
#define ROR(x, n) ROL(x, 32 - (n))
		for (int i = 16; i < 64; i++)
			w[i] = w[i - 16] + (ROR(w[i - 15], 7) ^ ROR(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
			       (ROR(w[i - 2], 17) ^ ROR(w[i - 2], 19) ^ w[i - 2] >> 10);
		memcpy(v, h, 32);
		for (int i = 0; i < 64; i++) {
			uint32_t t1 = v[7] + (ROR(v[4], 6) ^ ROR(v[4], 11) ^ ROR(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k256[i] + w[i];
			uint32_t t2 = (ROR(v[0], 2) ^ ROR(v[0], 13) ^ ROR(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
			memmove(v + 1, v, 28);
			v[4] += t1;
			v[0] = t1 + t2;
		}
		for (int i = 0; i < 8; i++) h[i] += v[i];
	}
	for (int i = 0; i < 32; i++) out[i] = h[i / 4] >> (24 - i % 4 * 8);
}

static uint64_t u64(void **p, int i) { uint64_t v; memcpy(&v, p[i], 8); return v; }
static uint32_t u32(void **p, int i) { uint32_t v; memcpy(&v, p[i], 4); return v; }

static void rows(void **p, uint64_t threads) {
	uint32_t key[8];
	for (int i = 0; i < 8; i++) key[i] = u32(p, 1 + i);
	for (uint64_t i = 0; i < threads && i < u32(p, 12); i++)
		chacha8((uint32_t *)(u64(p, 0) + 64 * i), key, i % u32(p, 11), u32(p, 9), u32(p, 10) + i / u32(p, 11));
}

static void gemm(void **p, uint64_t blocks) {
	const int8_t *a = (int8_t *)u64(p, 0), *b = (int8_t *)u64(p, 1);
	uint32_t depth = u32(p, 3), m = 128 * u32(p, 4), n = 128 * u32(p, 5);
	if (blocks != (uint64_t)u32(p, 4) * u32(p, 5)) abort();
	for (uint32_t i = 0; i < m; i++)
		for (uint32_t j = 0; j < n; j++) {
			int32_t sum = 0;
			for (uint32_t k = 0; k < depth; k++) sum += a[(uint64_t)i * depth + k] * b[(uint64_t)j * depth + k];
			((int32_t *)u64(p, 2))[(uint64_t)i * n + j] = sum;
		}
	if (mode("wrong")) ++*(int32_t *)u64(p, 2);
}

static void tiles(void **p, uint64_t blocks) {
	uint32_t pitch = u32(p, 2), across = u32(p, 3);
	constants();
	for (uint64_t t = 0; t < 4 * blocks && t < u32(p, 4); t++) {
		uint8_t level[128][32], data[129] = {0};
		for (int l = 0; l < 128; l++) {
			memcpy(data + 1, (int32_t *)u64(p, 0) + (t / across * 64 + l / 2) * pitch + t % across * 64 + l % 2 * 32, 128);
			sha256(level[l], data, 129);
		}
		data[0] = 1;
		for (int n = 64; n > 0; n /= 2)
			for (int i = 0; i < n; i++) {
				memcpy(data + 1, level[2 * i], 64);
				sha256(level[i], data, 65);
			}
		memcpy((uint8_t *)u64(p, 1) + 32 * t, level[0], 32);
	}
}

static void fill(void **p, uint64_t threads) {
	for (uint64_t i = 0; i < threads && i < u32(p, 10); i++) {
		uint64_t j = u64(p, 9) + i;
		uint32_t key[8], x[16];
		for (int k = 0; k < 8; k++) key[k] = u32(p, 1 + k);
		chacha8(x, key, j, 0, 0);
		for (uint32_t w = 1; w < u32(p, 11); w++) {
			memcpy(key, x, 32);
			chacha8(x, key, x[10] | (uint64_t)x[11] << 32, x[8], x[9]);
		}
		memcpy((uint8_t *)u64(p, 0) + 32 * j, x, 32);
	}
}

static uint64_t mix(uint64_t s, const uint64_t *c) {
	s = (s ^ c[0]) * 0x9e3779b97f4a7c15;
	s = (s ^ s >> 29 ^ c[1]) * 0xbf58476d1ce4e5b9;
	s = (s ^ s >> 32 ^ c[2]) * 0x94d049bb133111eb;
	return s ^ s >> 31 ^ c[3];
}

static void walk(void **p, uint64_t threads) {
	static const uint64_t begin[4] = {1, 2, 3, 4};
	for (uint64_t i = 0; i < threads && i < u32(p, 5); i++) {
		uint64_t *end = (uint64_t *)u64(p, 1) + i;
		uint64_t s = u32(p, 7) ? mix(u64(p, 2) ^ (u32(p, 4) + i) * 0x9e3779b97f4a7c15, begin) : *end;
		for (uint32_t n = 0; n < u32(p, 6); n++)
			s = mix(s, (uint64_t *)u64(p, 0) + 4 * (uint64_t)((unsigned __int128)s * u64(p, 3) >> 64));
		*end = s;
	}
}

static void groups(void **p, uint64_t threads) {
	constants();
	for (uint64_t i = 0; i < threads && i < u32(p, 2); i++) {
		uint8_t data[513] = {0};
		memcpy(data + 1, (uint8_t *)u64(p, 0) + 512 * i, 512);
		sha256((uint8_t *)u64(p, 1) + 32 * i, data, 513);
	}
}

int cuLaunchKernel(const char *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **params, void **extra) {
	uint64_t threads = (uint64_t)gx * bx;
	if (!current || gy != 1 || gz != 1 || by != 1 || bz != 1 || shared || stream != &used || extra) return 1;
	if (!strcmp(f, "rows")) rows(params, threads);
	else if (!strcmp(f, "tiles")) tiles(params, gx);
	else if (!strcmp(f, "fill")) fill(params, threads);
	else if (!strcmp(f, "walk")) walk(params, threads);
	else if (!strcmp(f, "groups")) groups(params, threads);
	else if (strcmp(f, "gemm")) return 500;
	else if (mode("crash")) *(volatile int *)0 = 1;
	else if (mode("hang")) for (;;) pause();
	else if (mode("fault")) return 700;
	else gemm(params, gx);
	return 0;
}
