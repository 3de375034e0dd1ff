// SPDX-License-Identifier: Apache-2.0
// Keys and values of an LMDB database, by its B+tree as it lies in the file.
//
// LMDB itself maps the file and believes every number in it: a file that is cut off, before or while it is read, ends the process with SIGBUS, and a
// damaged page makes it read beside the map. Here each page is read by pread, once, and everything in it is checked; values become ranges of the
// file, which are read ahead as those of other containers. Files are only read, so a tree is all there is to know: no locks, no transactions, no maps
// that a fork has to close.
//
// The format (data version 1, machines with 64 bits): pages 0 and 1 are headers, and that of the later transaction is valid. A page begins with
// its number (8 bytes), 2 unused, flags (2), and the ends of the table of nodes and of the free space (2 each) or the number of its pages (4).
#include <algorithm>
#include <cstring>
#include <string>

#include "ndd/error.h"
#include "readers/file_window.h"
#include "readers/scan.h"

namespace ndd {
namespace {

// Bytes: the header of a page, of a node, the description of a tree, and what is read of a meta page.
constexpr int64_t kHeader = 16, kNode = 8, kTree = 48, kMeta = kHeader + 24 + 2 * kTree + 16;
constexpr uint32_t kMagic = 0xBEEFC0DE, kVersion = 1;
constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr int kBranch = 1, kLeaf = 2, kOverflow = 4, kMetaPage = 8, kKinds = kBranch | kLeaf | kOverflow | kMetaPage | 0x20 | 0x40;
constexpr int kBigValue = 1, kDatabase = 2, kDuplicates = 4;  // flags of nodes: F_BIGDATA, F_SUBDATA, F_DUPDATA
constexpr int kSortedDuplicates = 4;  // flag of a tree: MDB_DUPSORT
constexpr int kMaxDepth = 32;  // LMDB's own limit; walk() is recursive

[[noreturn]] void reject(uint64_t page, const std::string& what) { fail("page ", page, " of the database is damaged: ", what); }

struct Header {
  uint64_t page_bytes, flags, depth, entries, root, last_page, transaction;
};

class Tree {
 public:
  explicit Tree(const std::string& path) : file_(path) {
    // Two meta pages are written alternately; the one of the later transaction counts.
    header_ = header_at(0);
    const Header other = header_at(static_cast<int64_t>(header_.page_bytes));
    if (other.page_bytes != header_.page_bytes) fail("the two headers of the database have different sizes of pages");
    if (other.transaction > header_.transaction) header_ = other;
    bytes_ = static_cast<int64_t>(header_.page_bytes);
    pages_ = static_cast<uint64_t>(file_.size()) / header_.page_bytes;
    if (header_.flags & kSortedDuplicates) fail("a database with several values of a key, which is not supported");
    if (header_.root == kNoPage ? header_.entries != 0 || header_.depth != 0 : header_.depth < 1 || header_.depth > uint64_t{kMaxDepth}) {
      fail("the header of the database is damaged: a tree of depth ", header_.depth);
    }
    visited_.assign(pages_, false);
  }

  Scan scan() {
    if (header_.root != kNoPage) walk(header_.root, 1);
    if (scan_.begins.size() != header_.entries) {
      fail("the header of the database counts ", header_.entries, " keys, but there are ", scan_.begins.size());
    }
    return std::move(scan_);
  }

 private:
  Header header_at(int64_t begin) {
    const char* page = file_.at(begin, kMeta);
    if (!page) fail("the file ends within the header of the database");
    // MDB_meta: magic and version (4 bytes each), address and size of the map (8 each), the trees of free pages and of the main database, the last
    // page, the transaction. The size of a page stands in the first field of the first tree.
    const char *meta = page + kHeader, *tree = meta + 24 + kTree, *end = tree + kTree;
    if (!(load<uint16_t>(page + 10) & kMetaPage) || load<uint32_t>(meta) != kMagic) fail("this is not an LMDB database");
    if (load<uint32_t>(meta + 4) != kVersion) {
      fail("an LMDB database of version ", load<uint32_t>(meta + 4), ", which is not supported");
    }
    const uint64_t page_bytes = load<uint32_t>(meta + 24);
    if (page_bytes < 256 || page_bytes > 32768 || (page_bytes & (page_bytes - 1)) != 0) {
      fail("the header of the database is damaged: pages of ", page_bytes, " bytes");
    }
    // MDB_db: padding (4), flags, depth (2 each), branch, leaf and overflow pages, entries, root (8 each).
    return {page_bytes,          load<uint16_t>(tree + 4), load<uint16_t>(tree + 6), load<uint64_t>(tree + 32), load<uint64_t>(tree + 40),
            load<uint64_t>(end), load<uint64_t>(end + 8)};
  }

  // Marks pages as visited. Each page may be visited only once, which bounds the walk and its memory whatever the pages contain.
  void visit(uint64_t page, uint64_t count) {
    // Pages 0 and 1 are the headers.
    if (page < 2 || page >= pages_ || count > pages_ - page) {
      std::string text =
          "page " + std::to_string(page) + " of the database is beyond the end of the file, which has " + std::to_string(pages_) + " pages";
      if (header_.last_page >= pages_) text += " of " + std::to_string(header_.last_page + 1) + ": it is cut off";
      fail(text);
    }
    for (uint64_t k = page; k < page + count; ++k) {
      if (visited_[k]) reject(k, "it is used twice");
      visited_[k] = true;
    }
  }

  // Returns a copy of `length` bytes from the beginning of a page, because the recursion moves the window of the file.
  std::string read(uint64_t page, int64_t length) {
    const char* bytes = file_.at(static_cast<int64_t>(page) * bytes_, length);
    if (!bytes) fail("the file became shorter while it was read");
    if (load<uint64_t>(bytes) != page) reject(page, "its number is " + std::to_string(load<uint64_t>(bytes)));
    return {bytes, static_cast<size_t>(length)};
  }

  // Visits the leaves below a page in the order of their keys.
  void walk(uint64_t number, uint64_t depth) {
    visit(number, 1);
    const std::string page = read(number, bytes_);
    // All leaves of a B+tree have the same depth, so the kind of page is known before it is read.
    const bool leaf = depth == header_.depth;
    const int kind = load<uint16_t>(page.data() + 10) & kKinds;
    if (kind != (leaf ? kLeaf : kBranch)) reject(number, "it is of kind " + std::to_string(kind));
    const int64_t lower = load<uint16_t>(page.data() + 12), upper = load<uint16_t>(page.data() + 14);
    if (lower < kHeader + 2 || lower % 2 != 0 || lower > upper || upper > bytes_) reject(number, "its table of nodes does not fit into it");
    // The table holds the offsets of the nodes, in the order of their keys.
    for (int64_t at = kHeader; at < lower; at += 2) {
      const int64_t node = load<uint16_t>(page.data() + at);
      if (node < upper || node > bytes_ - kNode) reject(number, "a node lies outside");
      const char* const head = page.data() + node;
      // A node: the length of its value, or a page, in two halves (2 bytes each), flags, length of the key (2 each), the key, the value.
      const uint64_t low = load<uint16_t>(head), high = load<uint16_t>(head + 2), flags = load<uint16_t>(head + 4);
      const int64_t key = load<uint16_t>(head + 6), left = bytes_ - node - kNode - key;
      if (left < 0) reject(number, "a key ends outside");
      if (!leaf) {
        walk(low | high << 16 | flags << 32, depth + 1);  // the number of a page has 48 bits
        continue;
      }
      const auto length = static_cast<int64_t>(low | high << 16);
      if (flags & (kDatabase | kDuplicates)) fail("a database with databases in it, or several values of a key, which is not supported");
      scan_.names.emplace_back(head + kNode, static_cast<size_t>(key));
      scan_.lengths.push_back(length);
      scan_.begins.push_back(flags & kBigValue ? find_big_value(number, head + kNode + key, left, length)
                                               : static_cast<int64_t>(number) * bytes_ + node + kNode + key);
      if (!(flags & kBigValue) && length > left) reject(number, "a value ends outside");
    }
  }

  // Returns where a value on its own (overflow) pages begins.
  int64_t find_big_value(uint64_t page, const char* pointer, int64_t left, int64_t length) {
    if (left < 8) reject(page, "a value's page lies outside");
    const auto first = load<uint64_t>(pointer);
    const auto pages = static_cast<uint64_t>((kHeader + length + bytes_ - 1) / bytes_);
    visit(first, pages);
    const std::string head = read(first, kHeader);
    if (!(load<uint16_t>(head.data() + 10) & kOverflow) || load<uint32_t>(head.data() + 12) < pages) reject(first, "it does not hold the value");
    return static_cast<int64_t>(first) * bytes_ + kHeader;
  }

  FileWindow file_;
  Header header_{};
  int64_t bytes_ = 0;
  uint64_t pages_ = 0;
  std::vector<bool> visited_;
  Scan scan_;
};

}  // namespace

Scan scan_lmdb(const std::string& path) { return Tree(path).scan(); }

}  // namespace ndd
