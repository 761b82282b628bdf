// What all drivers share: the call, the points, the clock, the files of shares and the line that is printed.
//
//     PROGRAM TREES DEPTH FOLDER
//
// A driver defines a class Peer and calls drive<Peer>. Of Peer are asked, in this order:
//
//     Peer(depth, points)    makes the keys of one tree for each point; a point is below 2^depth
//     group(), value()       how the two shares of a leaf add up, "xor" or "add", and what a tree has at its point
//     prepare(server)        whatever is not evaluation
//     evaluate()             the full domain of all trees with the keys of that server: this alone is timed
//     leaves(out)            copies what was evaluated: tree by tree, leaf by leaf
//
// README.md beside this file says what each of them must keep.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace peers {

// 16 bytes as they stand in memory; of an integer the lowest byte first.
using Leaf = std::array<std::uint8_t, 16>;
static_assert(sizeof(Leaf) == 16);

// The same points as the program that checks the shares.
inline std::vector<std::uint64_t> points_of(std::uint64_t trees, unsigned depth) {
    std::vector<std::uint64_t> points(trees);
    for (std::uint64_t tree = 0; tree < trees; ++tree) {
        points[tree] = static_cast<std::uint32_t>(tree * 2654435761ULL + 97ULL) >> (32 - depth);
    }
    return points;
}

inline std::string in_hexadecimal(const Leaf& leaf) {
    static const char digits[] = "0123456789abcdef";
    std::string text;
    for (std::uint8_t byte : leaf) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

inline void write_leaves(const std::string& path, const std::vector<Leaf>& leaves) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(leaves.data()), static_cast<std::streamsize>(leaves.size() * sizeof(Leaf)));
    if (!file.flush()) {
        throw std::runtime_error("cannot write " + path);
    }
}

template <class Peer>
void take_a_turn(std::uint64_t trees, unsigned depth, const std::string& folder) {
    using Clock = std::chrono::steady_clock;
    Peer peer(depth, points_of(trees, depth));
    std::vector<Leaf> leaves(trees << depth);
    double seconds = 0;
    for (int server : {1, 0}) {  // the second one is timed: memory and caches are warm then
        peer.prepare(server);
        const auto begun = Clock::now();
        peer.evaluate();
        seconds = std::chrono::duration<double>(Clock::now() - begun).count();
        peer.leaves(leaves);
        write_leaves(folder + "/" + std::to_string(server), leaves);
    }
    std::printf("{\"leaves\": %llu, \"seconds\": %.9f, \"group\": \"%s\", \"value\": \"%s\"}\n",
                static_cast<unsigned long long>(leaves.size()), seconds, peer.group(),
                in_hexadecimal(peer.value()).c_str());
}

template <class Peer>
int drive(int argc, char** argv) {
    const std::uint64_t trees = argc == 4 ? std::strtoull(argv[1], nullptr, 10) : 0;
    const unsigned long depth = argc == 4 ? std::strtoul(argv[2], nullptr, 10) : 0;
    if (trees == 0 || depth == 0 || depth > 30) {
        std::fprintf(stderr, "usage: %s TREES DEPTH FOLDER, with a depth from 1 to 30\n", argv[0]);
        return 2;
    }
    try {
        take_a_turn<Peer>(trees, static_cast<unsigned>(depth), argv[3]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}

}  // namespace peers
