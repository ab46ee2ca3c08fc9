#include "framework/parallel/expert_parallel.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "framework/base/range.h"
#include "framework/nn/pass.h"

namespace tessera::parallel {
namespace {

std::size_t size(std::int64_t elements) { return static_cast<std::size_t>(elements); }

/// The tokens of a micro-batch on the ranks of a tensor- and a context-parallel group.
class TokensOfRanks final : public autograd::MicroBatchRanks {
 public:
  TokensOfRanks(const comm::Communicator& group, nn::ContextRank context, nn::TensorRank tensor, const nn::Pass& pass)
      : group_(group), context_(context), tensor_(tensor), samples_(pass.B), length_(pass.S) {
    must(group.size() == context.ranks * parts() && group.rank() == context.rank * parts() + part(),
         "the ranks of a model are those of the pass in its micro-batch group");
    here_ = length_ / group.size();
    own_ = held(group.rank());
  }

  std::int64_t tokens() const override { return samples_ * length_; }
  std::int64_t index(std::int64_t own) const override { return index(own_, own); }

  void gather(autograd::Tape& tape, std::span<const float> own, std::int64_t width,
              std::span<float> all) const override {
    const auto memory = tape.scratch(all.size());
    const auto parts = autograd::Tape::floats(memory).first(all.size());
    group_.all_gather(std::as_bytes(own), std::as_writable_bytes(parts), "logits of routers");
    const auto rows = samples_ * here_;
    for (int member = 0; member < group_.size(); ++member) {
      const auto tokens = held(member);
      const auto from = parts.subspan(size(member * rows * width), size(rows * width));
      tape.threads().parallel_for(size(rows), 64, [&](std::size_t first, std::size_t last) {
        for (auto t = static_cast<std::int64_t>(first); t < static_cast<std::int64_t>(last); ++t)
          std::copy_n(from.begin() + t * width, width, all.begin() + index(tokens, t) * width);
      });
    }
  }

 private:
  int parts() const { return tensor_.cuts_sequence() ? tensor_.ranks : 1; }
  int part() const { return tensor_.cuts_sequence() ? tensor_.rank : 0; }

  /// The tokens of each sample that a member has; tensor-parallel ranks are neighbours.
  nn::HeldTokens held(int member) const {
    const nn::ContextRank context{member / parts(), context_.ranks, context_.contiguous};
    const auto begin = here_ * (member % parts());
    return nn::HeldTokens::of(context, begin, begin + here_, length_);
  }
  std::int64_t index(const nn::HeldTokens& held, std::int64_t row) const {
    return row / here_ * length_ + held.index(row % here_);
  }

  const comm::Communicator& group_;
  nn::ContextRank context_;
  nn::TensorRank tensor_;
  std::int64_t samples_, length_, here_ = 0;  ///< here: tokens of each sample on one rank
  nn::HeldTokens own_;
};

/// Rows of tokens on the ranks of an expert group. Member m has a part m % tensor_ranks of the experts of its block
/// m / tensor_ranks. Lies in memory of a tape, so it owns nothing.
class RowsOfRanks final : public autograd::RowExchange {
 public:
  /// `first_row` as ExpertRanks::exchange has it. The group must outlive this.
  RowsOfRanks(autograd::Tape& tape, const comm::Communicator& group, const nn::ExpertRank& rank,
              std::span<const std::int64_t> first_row)
      : group_(&group), copies_(rank.tensor_ranks) {
    const auto members = size(group.size()), experts = (first_row.size() - 1) / size(rank.ranks);
    blocks_ = tape.keep_array<Range<std::int64_t>>(members / size(copies_));
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      blocks_[b] = {first_row[b * experts], first_row[(b + 1) * experts]};
    const auto sent = tape.keep_array<std::int64_t>(members * experts),
               got = tape.keep_array<std::int64_t>(members * experts);
    for (std::size_t m = 0; m < members; ++m)
      for (std::size_t e = 0; e < experts; ++e) {
        const auto expert = m / size(copies_) * experts + e;
        sent[m * experts + e] = first_row[expert + 1] - first_row[expert];
      }
    bytes_out_ = tape.keep_array<std::size_t>(members);
    bytes_in_ = tape.keep_array<std::size_t>(members);
    std::ranges::fill(bytes_out_, experts * sizeof(std::int64_t));
    group.all_to_all(std::as_bytes(sent), bytes_out_, std::as_writable_bytes(got), bytes_out_, "rows of each expert");
    if (!group.connected())  // every member sends as many as this rank would send to itself
      for (std::size_t i = 0; i < got.size(); ++i) got[i] = sent[size(group.rank()) * experts + i % experts];
    place(tape, got, members, experts);
  }

  std::span<const std::int64_t> first_row() const override { return first_row_; }

  void to_experts(autograd::Tape& tape, std::int64_t width, const kernels::Elements& tokens,
                  const kernels::MutableElements& here) const override {
    const auto row = size(width) * size_of(tokens.type);
    const auto out = std::span(tokens.at, tokens.count * size_of(tokens.type));
    const auto copied = copies_ > 1 ? tape.scratch(DType::uint8, out.size() * size(copies_)) : Memory{};
    std::span<const std::byte> to_send = out;
    if (copies_ > 1) {
      const auto copies = size(copies_);
      const auto all = copied.bytes().first(out.size() * copies);
      to_send = all;
      tape.threads().parallel_for(blocks_.size() * copies, 1, [&](std::size_t i, std::size_t) {
        const auto& block = blocks_[i / copies];
        const auto bytes = out.subspan(size(block.begin) * row, size(block.size()) * row);
        const auto at = size(block.begin) * row * copies + i % copies * bytes.size();
        std::ranges::copy(bytes, all.begin() + static_cast<std::ptrdiff_t>(at));
      });
    }
    const auto received = tape.scratch(DType::uint8, size(received_rows()) * row);
    set_bytes(row);
    group_->all_to_all(to_send, bytes_out_, received.bytes().first(size(received_rows()) * row), bytes_in_, "tokens");
    move(tape, row, [&](std::size_t message, std::size_t expert, std::size_t bytes) {
      std::memcpy(here.at + expert, received.bytes().data() + message, bytes);
    });
  }

  void to_tokens(autograd::Tape& tape, std::int64_t width, std::span<const float> here,
                 std::span<float> tokens) const override {
    const auto row = size(width) * sizeof(float);
    const auto sent = tape.scratch(DType::uint8, size(received_rows()) * row);
    move(tape, row, [&](std::size_t message, std::size_t expert, std::size_t bytes) {
      std::memcpy(sent.bytes().data() + message, std::as_bytes(here).data() + expert, bytes);
    });
    set_bytes(row);
    const auto copies = copies_ > 1 ? tape.scratch(tokens.size() * size(copies_)) : Memory{};
    const auto arrived = copies_ > 1 ? autograd::Tape::floats(copies).first(tokens.size() * size(copies_)) : tokens;
    group_->all_to_all(sent.bytes().first(size(received_rows()) * row), bytes_in_, std::as_writable_bytes(arrived),
                       bytes_out_, "results of experts");
    if (copies_ == 1) return;
    tape.threads().parallel_for(blocks_.size(), 1, [&](std::size_t b, std::size_t) {
      const auto& block = blocks_[b];
      const auto to = tokens.subspan(size(block.begin * width), size(block.size() * width));
      auto from = arrived.begin() + block.begin * width * copies_;
      std::copy_n(from, to.size(), to.begin());
      from += static_cast<std::ptrdiff_t>(to.size());
      for (int copy = 1; copy < copies_; ++copy)
        for (auto& value : to) value += *from++;
    });
  }

 private:
  /// A message has the rows of its sender sorted by expert; here they are sorted by expert, then by sender.
  void place(autograd::Tape& tape, std::span<const std::int64_t> got, std::size_t members, std::size_t experts) {
    first_row_ = tape.keep_array<std::int64_t>(experts + 1);
    messages_ = tape.keep_array<Range<std::int64_t>>(members * experts);
    here_ = tape.keep_array<std::int64_t>(members * experts);
    received_ = tape.keep_array<std::int64_t>(members);
    std::int64_t row = 0;
    for (std::size_t e = 0; e < experts; ++e) {
      first_row_[e] = row;
      for (std::size_t m = 0; m < members; ++m) {
        here_[m * experts + e] = row;
        row += got[m * experts + e];
      }
    }
    first_row_[experts] = row;
    std::int64_t in_message = 0;
    for (std::size_t m = 0; m < members; ++m) {
      received_[m] = -in_message;
      for (std::size_t e = 0; e < experts; ++e) {
        messages_[m * experts + e] = {in_message, in_message + got[m * experts + e]};
        in_message += got[m * experts + e];
      }
      received_[m] += in_message;
    }
  }

  std::int64_t received_rows() const { return first_row_.back(); }

  void set_bytes(std::size_t row) const {
    for (std::size_t m = 0; m < bytes_out_.size(); ++m) {
      bytes_out_[m] = size(blocks_[m / size(copies_)].size()) * row;
      bytes_in_[m] = size(received_[m]) * row;
    }
  }

  /// Calls body(byte in the messages, byte here, bytes) for the rows of each sender and expert.
  template <class Body>
  void move(autograd::Tape& tape, std::size_t row, const Body& body) const {
    tape.threads().parallel_for(messages_.size(), 1, [&](std::size_t first, std::size_t last) {
      for (auto i = first; i < last; ++i)
        body(size(messages_[i].begin) * row, size(here_[i]) * row, size(messages_[i].size()) * row);
    });
  }

  const comm::Communicator* group_;
  int copies_;                                   ///< of each row that is sent: ranks that have a part of an expert
  std::span<Range<std::int64_t>> blocks_;        ///< of this rank's rows, for each block of experts
  std::span<std::int64_t> first_row_;            ///< [experts here + 1]
  std::span<Range<std::int64_t>> messages_;      ///< [members, experts here] in all messages, one behind the other
  std::span<std::int64_t> here_;                 ///< [members, experts here] first row here
  std::span<std::int64_t> received_;             ///< [members] rows
  std::span<std::size_t> bytes_out_, bytes_in_;  ///< [members] of the exchange in progress
};
static_assert(std::is_trivially_destructible_v<RowsOfRanks>, "memory of a tape runs no destructors");

/// The ranks of an expert group.
class Ranks final : public autograd::ExpertRanks {
 public:
  Ranks(const comm::Communicator& group, const nn::ExpertRank& rank) : group_(group), rank_(rank) {
    must(group.size() == rank.ranks * rank.tensor_ranks &&
             group.rank() == rank.rank * rank.tensor_ranks + rank.tensor_rank,
         "the ranks of a model are those of the pass in its expert group");
  }
  const autograd::RowExchange& exchange(autograd::Tape& tape, std::span<const std::int64_t> first_row) const override {
    return *new (tape.keep(sizeof(RowsOfRanks)).data()) RowsOfRanks(tape, group_, rank_, first_row);
  }
  std::int64_t experts_here(std::int64_t experts) const override { return rank_.count(experts); }

 private:
  const comm::Communicator& group_;
  nn::ExpertRank rank_;
};

const ProcessGroups& groups_of(const nn::Pass& pass) {
  must(pass.groups != nullptr, "the pass of a model that shares experts or tokens has the groups of this rank");
  return *pass.groups;
}

}  // namespace

autograd::ExpertChoices ExpertParallel::route(const autograd::Var& logits, const autograd::RouterTerms& terms,
                                              const nn::Pass& pass) const {
  if (context_.whole() && !tensor_.cuts_sequence()) return autograd::route(logits, terms);
  const TokensOfRanks ranks(groups_of(pass).micro_batch, context_, tensor_, pass);
  return autograd::route(logits, terms, &ranks);
}

autograd::Var ExpertParallel::experts(const autograd::Var& x, const autograd::ExpertChoices& choices,
                                      const autograd::ExpertLayers& layers, const autograd::ExpertNetwork& network,
                                      const nn::Pass& pass, const autograd::ExpertTap& tap) const {
  if (experts_.whole()) return autograd::experts(x, choices, layers, network, nullptr, tap);
  const Ranks ranks(groups_of(pass).experts, experts_);
  return autograd::experts(x, choices, layers, network, &ranks, tap);
}

}  // namespace tessera::parallel
