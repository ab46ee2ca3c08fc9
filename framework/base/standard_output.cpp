#include "framework/base/standard_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <mutex>
#include <streambuf>

#include "framework/base/system_call.h"
#include "framework/base/visible_text.h"

namespace tessera {

void occupy_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0) ::open("/dev/null", descriptor == STDOUT_FILENO ? O_RDONLY : O_WRONLY);
}

class StandardOutput::Buffer final : public std::streambuf {
 public:
  explicit Buffer(int descriptor)
      : descriptor_(descriptor), terminal_(::isatty(descriptor) == 1), before_(std::cout.rdbuf(this)) {
    std::cout.clear();
  }
  ~Buffer() override {
    finish();
    std::cout.rdbuf(before_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void pass_text() {
    const std::lock_guard lock(mutex_);
    emit(false);
    passes_ = !terminal_;
  }

  std::string finish() {
    const std::lock_guard lock(mutex_);
    emit(true);
    // A file system such as NFS reports some failures only when a descriptor is closed.
    const int copy = wrote_ && error_ == 0 ? ::dup(descriptor_) : -1;
    if (copy >= 0 && ::close(copy) != 0 && errno != EINTR) error_ = errno;
    return error_ == 0 || error_ == EPIPE ? "" : std::strerror(error_);
  }

 private:
  static constexpr std::size_t most_waiting = std::size_t{64} << 10U;

  // There is no put area: every character comes through these functions, under the mutex.
  int_type overflow(int_type c) override {
    const auto one = traits_type::to_char_type(c);
    return traits_type::eq_int_type(c, traits_type::eof()) || add({&one, 1}) ? traits_type::not_eof(c)
                                                                             : traits_type::eof();
  }
  std::streamsize xsputn(const char* words, std::streamsize count) override {
    return add({words, static_cast<std::size_t>(count)}) ? count : 0;
  }
  int sync() override {
    const std::lock_guard lock(mutex_);
    emit(false);
    return error_ == 0 ? 0 : -1;
  }

  bool add(std::string_view words) {
    const std::lock_guard lock(mutex_);
    waiting_ += words;
    if (waiting_.size() >= most_waiting || (terminal_ && words.find('\n') != std::string_view::npos)) emit(false);
    return error_ == 0;
  }

  /// `all` false: without a character of which only the beginning has been written.
  void emit(bool all) {
    const auto count = all || passes_ ? waiting_.size() : whole_characters(waiting_);
    if (count > 0 && error_ == 0) {
      const auto words = std::string_view(waiting_).substr(0, count);
      wrote_ = true;
      put(passes_ ? std::string(words) : visible(words));
    }
    waiting_.erase(0, count);
  }

  void put(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto count = uninterrupted([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
      if (count > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(count));
      } else if (count < 0 && errno == EAGAIN) {  // another process made it non-blocking
        pollfd watched = {descriptor_, POLLOUT, 0};
        ::poll(&watched, 1, -1);
      } else {
        error_ = count < 0 ? errno : EIO;
        return;
      }
    }
  }

  int descriptor_;
  bool terminal_, passes_ = false, wrote_ = false;
  int error_ = 0;
  std::string waiting_;
  std::mutex mutex_;
  std::streambuf* before_;
};

StandardOutput::StandardOutput(int descriptor) : buffer_(std::make_unique<Buffer>(descriptor)) {}
StandardOutput::~StandardOutput() = default;
void StandardOutput::pass_text() { buffer_->pass_text(); }
std::string StandardOutput::finish() { return buffer_->finish(); }

}  // namespace tessera
