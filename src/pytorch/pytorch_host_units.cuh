/* SPDX-License-Identifier: MIT */

/* Units: a kernel compiled for some numbers (dtype, vectors, which operands move along which dim),
 * each a library of its own, built when it is first needed. */
typedef int64_t (*UnitRun)(const void *);
struct Unit {
    std::string name, numbers;
    UnitRun run;
};
static std::vector<Unit> units;
static std::vector<std::string> missing_unit; /* name and numbers of one that is to be built */
static std::map<std::string, std::string> served;

std::vector<std::string> missing() { return missing_unit; }

void add_unit(const std::string &name, const std::string &numbers, int64_t run)
{
    units.push_back({name, numbers, (UnitRun)run});
}

/* What served each kernel last. */
std::vector<std::string> kernels()
{
    std::vector<std::string> lines;
    for (const auto &one : served)
        lines.push_back(one.first + ": " + one.second);
    return lines;
}

/* Of the current device. */
static int attribute(cudaDeviceAttr which)
{
    int value = 0, device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

/* A unit, or NULL: it is missing. */
static UnitRun find_unit(const char *name, const std::string &numbers)
{
    for (const Unit &unit : units)
        if (unit.name == name && unit.numbers == numbers)
            return unit.run;
    missing_unit = {name, numbers};
    return NULL;
}
