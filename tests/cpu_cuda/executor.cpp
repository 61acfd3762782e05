// Executes launches, each in a process of its own; executor.py writes the requests and reads the answers.
//
// argv[1] is the open file of the memory that is shared with the tests. Everything is text, in lines: the address of that
// memory first, then for each request what its process came to, its exit status or the number of a signal, negated.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Request {
    std::string library, kernel;
    unsigned grid[3], block[3];
    std::uintptr_t shared;
    std::size_t shared_bytes;
    bool cooperative;
    unsigned seed, limit_s;
    std::vector<std::uintptr_t> guards;    // where a page begins that must not be touched
    std::vector<std::uintptr_t> pages;     // of a dependent launch's tensors, an address and a size each
    std::vector<std::uint64_t> arguments;  // of which each takes as many bytes as its type has
};

template <class T>
void read(std::vector<T>& values) {
    std::size_t count = 0;
    std::cin >> count;
    values.resize(count);
    for (T& value : values) std::cin >> value;
}

bool read(Request& request) {
    if (!std::getline(std::cin >> std::ws, request.library)) return false;
    std::cin >> request.kernel;
    for (unsigned& size : request.grid) std::cin >> size;
    for (unsigned& size : request.block) std::cin >> size;
    std::cin >> request.shared >> request.shared_bytes >> request.cooperative >> request.seed >> request.limit_s;
    read(request.guards);
    read(request.pages);
    read(request.arguments);
    return true;
}

template <class Function>
Function* find(void* library, const char* name) {
    void* found = library ? dlsym(library, name) : nullptr;
    if (!found) {
        std::cerr << "executor: " << dlerror() << std::endl;
        std::exit(1);
    }
    return reinterpret_cast<Function*>(found);
}

void launch(Request& request, void* library, char* memory) {
    using Kernel = void(void**);
    using Launch = void(Kernel*, void**, const unsigned*, const unsigned*, void*, std::size_t, bool, unsigned, unsigned,
                        const std::uintptr_t*, std::size_t, char*);
    const long page = sysconf(_SC_PAGESIZE);
    for (std::uintptr_t guard : request.guards) mprotect(reinterpret_cast<void*>(guard), page, PROT_NONE);
    std::vector<void*> arguments;
    for (std::uint64_t& argument : request.arguments) arguments.push_back(&argument);
    find<Launch>(library, "launch_on_cpu")(find<Kernel>(library, request.kernel.c_str()), arguments.data(), request.grid,
                                           request.block, reinterpret_cast<void*>(request.shared), request.shared_bytes,
                                           request.cooperative, request.seed, request.limit_s, request.pages.data(),
                                           request.pages.size() / 2, memory);
}

}  // namespace

int main(int, char** argv) {
    const int file = std::atoi(argv[1]);
    struct stat status;
    if (fstat(file, &status) != 0) return 1;
    void* memory = mmap(nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return 1;
    std::cout << reinterpret_cast<std::uintptr_t>(memory) << std::endl;
    for (Request request; read(request);) {
        void* library = dlopen(request.library.c_str(), RTLD_NOW | RTLD_LOCAL);  // the next fork has it by then
        const pid_t child = fork();
        if (child == 0) {
            launch(request, library, static_cast<char*>(memory));
            _exit(0);
        }
        int came_to = 0;
        if (child < 0 || waitpid(child, &came_to, 0) < 0) return 1;
        std::cout << (WIFSIGNALED(came_to) ? -WTERMSIG(came_to) : WEXITSTATUS(came_to)) << std::endl;
    }
}
