// myl7/fss, on the processor: the depth of a tree is a template's argument, so that every depth is compiled.
//
// A seed has 127 bits that count, and so has a value: the lowest bit of its last word is always 0.

#include <cstring>
#include <random>

#include "driver.hpp"

#include <cuda_runtime.h>
#include <fss/dpf.cuh>
#include <fss/group/bytes.cuh>
#include <fss/prg/aes128_mmo.cuh>

namespace {

using Prg = fss::prg::Aes128Mmo<2>;

constexpr unsigned kDeepest = 16;

class Contexts {
public:
    Contexts() : both_(make()) {}
    Contexts(const Contexts&) = delete;
    ~Contexts() { Prg::FreeCtxs(both_); }
    Prg prg() { return Prg(both_); }

private:
    static cuda::std::array<EVP_CIPHER_CTX*, 2> make() {
        static const unsigned char left[16] = {0x6c, 0x65, 0x66, 0x74}, right[16] = {0x72, 0x69, 0x67, 0x68, 0x74};
        const unsigned char* keys[2] = {left, right};
        return Prg::CreateCtxs(keys);
    }

    cuda::std::array<EVP_CIPHER_CTX*, 2> both_;
};

template <unsigned kDepth>
class Peer {
    using Dpf = fss::Dpf<static_cast<int>(kDepth), fss::group::Bytes, Prg, unsigned>;
    using Cw = typename Dpf::Cw;

public:
    Peer(unsigned, const std::vector<std::uint64_t>& points)
        : words_(points.size() * (kDepth + 1)), seeds_(points.size()), results_(points.size() << kDepth) {
        std::random_device randomness;
        Dpf dpf{contexts_.prg()};
        for (std::size_t tree = 0; tree < points.size(); ++tree) {
            for (int4& seed : seeds_[tree]) {
                auto word = [&] { return static_cast<int>(randomness()); };
                seed = {word(), word(), word(), word() & ~1};
            }
            dpf.Gen(&words_[tree * (kDepth + 1)], seeds_[tree].data(), static_cast<unsigned>(points[tree]),
                    int4{1, 0, 0, 0});
        }
    }

    const char* group() const { return "xor"; }
    peers::Leaf value() const { return {1}; }
    void prepare(int server) { server_ = server; }

    void evaluate() {
        Dpf dpf{contexts_.prg()};
        for (std::size_t tree = 0; tree < seeds_.size(); ++tree) {
            dpf.EvalAll(server_ == 1, seeds_[tree][server_], &words_[tree * (kDepth + 1)], &results_[tree << kDepth]);
        }
    }

    void leaves(std::vector<peers::Leaf>& out) const {
        std::memcpy(out.data(), results_.data(), out.size() * sizeof(peers::Leaf));
    }

private:
    Contexts contexts_;
    int server_ = 0;
    std::vector<Cw> words_;
    std::vector<std::array<int4, 2>> seeds_;
    std::vector<int4> results_;
};

// From the depth that is asked for to the class that was compiled for it.
template <unsigned kDepth>
int drive(unsigned long depth, int argc, char** argv) {
    if (depth == kDepth) {
        return peers::drive<Peer<kDepth>>(argc, argv);
    }
    if constexpr (kDepth < kDeepest) {
        return drive<kDepth + 1>(depth, argc, argv);
    }
    std::fprintf(stderr, "depths from 1 to %u are compiled\n", kDeepest);
    return 2;
}

}  // namespace

int main(int argc, char** argv) { return drive<1>(argc == 4 ? std::strtoul(argv[2], nullptr, 10) : 0, argc, argv); }
