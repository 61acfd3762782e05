// Executes launches, one after the other; executor.py writes the requests and reads the answers.
//
// A launch with a fault ends this process; so does a request marked as the last. argv[1] is the open file of the memory that
// the tests share. Answers are lines of text: the address of that memory first, then "done" for each executed request.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

constexpr std::size_t STACKS_BYTES = std::size_t{4} << 30;  // of addresses, for a launch's threads; as runtime.cpp has it

struct Request {
    std::string library, kernel;
    unsigned grid[3], block[3];
    std::uintptr_t shared;
    std::size_t shared_bytes;
    bool is_last;
    unsigned together;
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
    std::cin >> request.shared >> request.shared_bytes >> request.is_last >> request.together;
    std::cin >> request.seed >> request.limit_s;
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

void launch(Request& request, char* memory, char* stacks) {
    using Kernel = void(void**);
    using Launch = void(Kernel*, void**, const unsigned*, const unsigned*, void*, std::size_t, unsigned, unsigned,
                        unsigned, const std::uintptr_t*, std::size_t, char*, char*);
    void* library = dlopen(request.library.c_str(), RTLD_NOW | RTLD_LOCAL);
    auto* launch_on_cpu = find<Launch>(library, "launch_on_cpu");
    auto* kernel = find<Kernel>(library, request.kernel.c_str());
    std::vector<void*> arguments;
    for (std::uint64_t& argument : request.arguments) arguments.push_back(&argument);
    const auto protect_guards = [&request](int allowed) {
        const long page = sysconf(_SC_PAGESIZE);
        for (std::uintptr_t guard : request.guards) mprotect(reinterpret_cast<void*>(guard), page, allowed);
    };
    protect_guards(PROT_NONE);
    launch_on_cpu(kernel, arguments.data(), request.grid, request.block, reinterpret_cast<void*>(request.shared),
                  request.shared_bytes, request.together, request.seed, request.limit_s, request.pages.data(),
                  request.pages.size() / 2, memory, stacks);
    protect_guards(PROT_READ | PROT_WRITE);
}

}  // namespace

int main(int, char** argv) {
    const int file = std::atoi(argv[1]);
    struct stat status;
    if (fstat(file, &status) != 0) return 1;
    constexpr int READ_WRITE = PROT_READ | PROT_WRITE;
    // No memory within reach of an int index of four-byte numbers, so that a far access hits nothing else.
    constexpr std::size_t MARGIN = std::size_t{8} << 30;
    void* reserved = mmap(nullptr, 2 * MARGIN + status.st_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return 1;
    void* memory = mmap(static_cast<char*>(reserved) + MARGIN, status.st_size, READ_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    // Kept from launch to launch: first touches of pages would take most of a small launch's time.
    void* stacks = mmap(nullptr, STACKS_BYTES, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || stacks == MAP_FAILED) return 1;
    std::cout << reinterpret_cast<std::uintptr_t>(memory) << std::endl;
    for (Request request; read(request);) {
        launch(request, static_cast<char*>(memory), static_cast<char*>(stacks));
        if (request.is_last) _exit(0);  // without a word, for which the launch may have left nothing as it was
        std::cout << "done" << std::endl;
    }
}
