#pragma once

namespace tessera {

/// While an object of this class exists, mapped_pages_used() gives back the memory of all mapped files of this process
/// (base/files.h, MappedFile): their pages are loaded again when they are read again, mostly from the system's cache.
/// For commands that read files larger than their memory shall be.
class SparesMappedPages {
 public:
  SparesMappedPages();
  ~SparesMappedPages();
  SparesMappedPages(const SparesMappedPages&) = delete;
  SparesMappedPages& operator=(const SparesMappedPages&) = delete;
};

/// Called after a tensor has been read from a mapped file and written elsewhere. Thread-safe.
void mapped_pages_used();

}  // namespace tessera
