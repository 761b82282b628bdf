// libOTe: RegularDpf expands many trees side by side, and hands every leaf to a function.
//
// So many trees make one key here that what is in work stays in a core's own cache; all at once would leave it.

#include <algorithm>
#include <cstring>

#include "driver.hpp"

#include "libOTe/Dpf/RegularDpf.h"

namespace {

using osuCrypto::block;
using osuCrypto::RegularDpf;
using osuCrypto::RegularDpfKey;

constexpr std::size_t kTogether = 64;

class Peer {
public:
    Peer(unsigned depth, const std::vector<std::uint64_t>& points)
        : domain_(osuCrypto::u64(1) << depth), results_(points.size() * domain_) {
        osuCrypto::PRNG randomness(osuCrypto::sysRandomSeed());
        for (std::size_t first = 0; first < points.size(); first += kTogether) {
            const std::size_t last = std::min(points.size(), first + kTogether);
            std::vector<osuCrypto::u64> some(points.begin() + first, points.begin() + last);
            std::vector<block> values(some.size(), block(0, 1));
            std::array<RegularDpfKey, 2> pair;
            RegularDpf::keyGen(domain_, some, values, randomness, pair);
            for (int server : {0, 1}) {
                keys_[server].push_back(pair[server]);
            }
        }
    }

    const char* group() const { return "xor"; }
    peers::Leaf value() const { return {1}; }
    void prepare(int server) { server_ = server; }

    void evaluate() {
        block* out = results_.data();
        for (auto& key : keys_[server_]) {
            RegularDpf::expand(server_, domain_, key, [&](auto tree, auto leaf, block share, block) {
                out[tree * domain_ + leaf] = share;
            });
            out += key.mLeafVals.size() * domain_;
        }
    }

    void leaves(std::vector<peers::Leaf>& out) const {
        std::memcpy(out.data(), results_.data(), out.size() * sizeof(peers::Leaf));
    }

private:
    osuCrypto::u64 domain_;
    int server_ = 0;
    std::vector<RegularDpfKey> keys_[2];
    std::vector<block> results_;
};

}  // namespace

int main(int argc, char** argv) { return peers::drive<Peer>(argc, argv); }
