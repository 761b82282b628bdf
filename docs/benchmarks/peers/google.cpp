// google/distributed_point_functions: one key for each tree, values of 128 bits that add up as integers.
//
// A context belongs to one evaluation, so that all of them are made before the clock starts.

#include <cstring>
#include <memory>

#include "driver.hpp"

#include "absl/numeric/int128.h"
#include "dpf/distributed_point_function.h"

namespace {

namespace dpf = distributed_point_functions;

class Peer {
public:
    Peer(unsigned depth, const std::vector<std::uint64_t>& points) : results_(points.size()) {
        dpf::DpfParameters parameters;
        parameters.set_log_domain_size(static_cast<int>(depth));
        parameters.mutable_value_type()->mutable_integer()->set_bitsize(128);
        function_ = dpf::DistributedPointFunction::Create(parameters).value();
        for (std::uint64_t point : points) {
            auto pair = function_->GenerateKeys(absl::uint128(point), absl::uint128(1)).value();
            keys_[0].push_back(std::move(pair.first));
            keys_[1].push_back(std::move(pair.second));
        }
    }

    const char* group() const { return "add"; }
    peers::Leaf value() const { return {1}; }

    void prepare(int server) {
        contexts_.clear();
        for (const auto& key : keys_[server]) {
            contexts_.push_back(function_->CreateEvaluationContext(key).value());
        }
    }

    void evaluate() {
        for (std::size_t tree = 0; tree < contexts_.size(); ++tree) {
            results_[tree] = function_->EvaluateUntil<absl::uint128>(0, {}, contexts_[tree]).value();
        }
    }

    void leaves(std::vector<peers::Leaf>& out) const {
        std::size_t place = 0;
        for (const auto& result : results_) {
            for (absl::uint128 share : result) {
                const std::uint64_t halves[2] = {absl::Uint128Low64(share), absl::Uint128High64(share)};
                std::memcpy(out[place++].data(), halves, sizeof(halves));
            }
        }
    }

private:
    std::unique_ptr<dpf::DistributedPointFunction> function_;
    std::vector<dpf::DpfKey> keys_[2];
    std::vector<dpf::EvaluationContext> contexts_;
    std::vector<std::vector<absl::uint128>> results_;
};

}  // namespace

int main(int argc, char** argv) { return peers::drive<Peer>(argc, argv); }
