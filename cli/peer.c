/* SPDX-License-Identifier: MIT
 *
 * peer.c - the same formula by PyTorch; see peer.h. What the formula is in PyTorch's functions is
 * taken from the file that `ogive emit --pytorch` writes.
 */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report.h"

enum { NO_TORCH = 3 };

static const char script[] =
    "import importlib.util, json, statistics, sys, time\n"
    "try:\n"
    "    import torch\n"
    "except ImportError:\n"
    "    sys.exit(3)\n"
    "folder, device, threads = sys.argv[1:]\n"
    "if int(threads):\n"
    "    torch.set_num_threads(int(threads))\n"
    "spec = importlib.util.spec_from_file_location('formula', folder + '/formula.py')\n"
    "module = importlib.util.module_from_spec(spec)\n"
    "spec.loader.exec_module(module)\n"
    "wait = torch.cuda.synchronize if device != 'cpu' else lambda: None\n"
    "def sample(call, repeats):\n"
    "    start = time.perf_counter()\n"
    "    for _ in range(repeats):\n"
    "        call()\n"
    "    wait()\n"
    "    return (time.perf_counter() - start) / repeats\n"
    "def median(call):\n"
    "    once = [sample(call, 1) for _ in range(3)][-1]\n"
    "    repeats = int((2e-3 if device != 'cpu' else 20e-6) / once) + 1\n"
    "    samples, begin = [], time.perf_counter()\n"
    "    while len(samples) < 20 or time.perf_counter() - begin < 0.5 and len(samples) < 2000:\n"
    "        samples.append(sample(call, repeats))\n"
    "    return statistics.median(samples)\n"
    "def measure(case):\n"
    "    tensors = [torch.empty_strided(each['shape'], each['strides'], device=device,\n"
    "                                   dtype=getattr(torch, each['dtype']))\n"
    "               .copy_(torch.rand(each['shape'], device=device)) for each in case]\n"
    "    found = {'version': torch.__version__,\n"
    "             'eager': median(lambda: module._plain(*tensors)), 'compiled': 0.0}\n"
    "    try:\n"
    "        torch._dynamo.reset()\n"
    "        compiled = torch.compile(module._plain, dynamic=False)\n"
    "        found['compiled'] = median(lambda: compiled(*tensors))\n"
    "    except Exception as error:\n"
    "        print('note: torch.compile:', str(error).splitlines()[0], file=sys.stderr)\n"
    "    return found\n"
    "if __name__ == '__main__':  # not in the processes that compile\n"
    "    with torch.no_grad(), open(folder + '/cases.json') as cases:\n"
    "        for case in json.load(cases):\n"
    "            print(json.dumps(measure(case)), flush=True)\n";

json_t *peer_describe(const inputs *in)
{
    json_t *list = json_array();

    for (size_t i = 0; i < in->count; i++) {
        const host_layout *layout = &in->items[i].layout;
        json_t *shape = json_array(), *strides = json_array();
        for (int32_t d = 0; d < layout->ndim; d++) {
            json_array_append_new(shape, json_integer(layout->shape[d]));
            json_array_append_new(strides, json_integer(layout->strides[d]));
        }
        json_array_append_new(list, json_pack("{s:o, s:o, s:s}", "shape", shape, "strides", strides,
                                              "dtype", layout->dtype->name));
    }
    return list;
}

static bool write_file(const char *folder, const char *name, const char *text, failure *why)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    bool good = file && fputs(text, file) >= 0;
    if (file)
        good &= fclose(file) == 0;
    return good || failed(why, STATUS_FILE, "cannot write '%s'", path);
}

/* The formula as PyTorch's functions, the cases and what runs them, in folder. */
static bool write_files(const request *r, const json_t *cases, const char *folder, failure *why)
{
    char *text = NULL, *list = json_dumps(cases, 0);
    size_t length = 0;
    ogive_error error;

    bool good = list || fail_memory(why, 0, "the shapes");
    if (good && (ogive_formula_pytorch(r->formula, r->in.tensors, r->in.count, NULL, NULL, 0,
                                       &length, &error) ||
                 !(text = malloc(length + 1)) ||
                 ogive_formula_pytorch(r->formula, r->in.tensors, r->in.count, NULL, text,
                                       length + 1, &length, &error)))
        good = fail_library(why, &error);
    good = good && write_file(folder, "formula.py", text, why) &&
           write_file(folder, "cases.json", list, why) &&
           write_file(folder, "measure.py", script, why);
    free(text);
    free(list);
    return good;
}

static bool read_times(FILE *pipe, size_t count, peer_time *times)
{
    for (size_t i = 0; i < count; i++) {
        json_t *found = json_loadf(pipe, JSON_DISABLE_EOF_CHECK, NULL);
        const char *version = json_string_value(json_object_get(found, "version"));
        times[i].eager = json_number_value(json_object_get(found, "eager"));
        times[i].compiled = json_number_value(json_object_get(found, "compiled"));
        snprintf(times[i].version, sizeof(times[i].version), "%s", version ? version : "");
        json_decref(found);
        if (!version)
            return false;
    }
    return true;
}

/* Whoever writes to a pipe that is closed gets a signal, or Python's traceback. */
static void read_to_end(FILE *pipe)
{
    while (fgetc(pipe) != EOF)
        continue;
}

static bool run_script(const char *folder, const char *device, int64_t threads, size_t count,
                       peer_time *times, failure *why)
{
    const char *python = getenv("OGIVE_PYTHON");
    char line[600];

    if (!python || strpbrk(python, "'\"\\") || strlen(python) > 256)
        python = "python3";
    snprintf(line, sizeof(line), "exec '%s' %s/measure.py %s %s %lld", python, folder, folder,
             device, (long long)threads);
    FILE *pipe = popen(line, "r");
    if (!pipe)
        return failed(why, STATUS_DEVICE, "cannot run %s", python);
    bool good = read_times(pipe, count, times);
    read_to_end(pipe);
    int status = pclose(pipe);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_TORCH)
        return failed(why, STATUS_DEVICE,
                      "%s has no PyTorch for --peer torch; OGIVE_PYTHON names another", python);
    return good || failed(why, STATUS_DEVICE, "PyTorch, run by %s, measured nothing", python);
}

bool peer_measure(const request *r, const json_t *cases, const char *device, int64_t threads,
                  peer_time *times, failure *why)
{
    static const char *const names[] = {"formula.py", "cases.json", "measure.py"};
    char folder[] = "/tmp/ogive-peer-XXXXXX", path[128];

    if (!mkdtemp(folder))
        return failed(why, STATUS_FILE, "cannot make a folder in /tmp");
    bool good = write_files(r, cases, folder, why) &&
                run_script(folder, device, threads, json_array_size(cases), times, why);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/__pycache__", folder);
    rmdir(path);
    rmdir(folder);
    return good;
}
