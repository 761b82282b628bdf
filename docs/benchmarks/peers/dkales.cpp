// dkales/dpf-cpp: its trees end in blocks of 128 bits, one bit for each point of its domain.
//
// A tree of 2^depth leaves of 128 bits is therefore a tree over 2^(depth + 7) of its points. The lowest bit of our leaf
// stands for the point of its function, so that the leaf has the value 1.

#include <cstring>

#include "driver.hpp"

#include "dpf.h"

namespace {

constexpr unsigned kBitsOfALeaf = 7;   // 2^7 = 128
constexpr unsigned kEightAtOnce = 10;  // its faster way is for larger domains than 2^10

class Peer {
public:
    Peer(unsigned depth, const std::vector<std::uint64_t>& points)
        : bits_(depth + kBitsOfALeaf), results_(points.size()) {
        for (std::uint64_t point : points) {
            auto pair = DPF::Gen(point << kBitsOfALeaf, bits_);
            keys_[0].push_back(pair.first);
            keys_[1].push_back(pair.second);
        }
    }

    const char* group() const { return "xor"; }
    peers::Leaf value() const { return {1}; }
    void prepare(int server) { server_ = server; }

    void evaluate() {
        const auto& keys = keys_[server_];
        for (std::size_t tree = 0; tree < keys.size(); ++tree) {
            results_[tree] =
                bits_ > kEightAtOnce ? DPF::EvalFull8(keys[tree], bits_) : DPF::EvalFull(keys[tree], bits_);
        }
    }

    void leaves(std::vector<peers::Leaf>& out) const {
        auto* to = reinterpret_cast<std::uint8_t*>(out.data());
        for (const auto& result : results_) {
            std::memcpy(to, result.data(), result.size());
            to += result.size();
        }
    }

private:
    std::size_t bits_;
    int server_ = 0;
    std::vector<std::vector<std::uint8_t>> keys_[2];
    std::vector<std::vector<std::uint8_t>> results_;
};

}  // namespace

int main(int argc, char** argv) { return peers::drive<Peer>(argc, argv); }
