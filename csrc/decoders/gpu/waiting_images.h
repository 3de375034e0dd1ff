// SPDX-License-Identifier: Apache-2.0
// Which decoder of a GPU takes which images. The JPEG engine ("hardware") takes them from the ends of the waiting batches, in groups of as many as it
// decodes at the same time; CPU threads with the CUDA decoder take them from the starts, until both meet. Nothing is timed: a faster decoder
// returns sooner for more. Whether the engine takes another group, and from which batch, follows from counts of images. No CUDA here, so a test can
// simulate it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <vector>

namespace ndd {

// The images of a call that no decoder has taken yet. Guarded by the mutex of the queue.
class WaitingBatch {
 public:
  // `reserved` are images for the engine alone. If `is_fixed`, it takes no others.
  WaitingBatch(int64_t images, const std::vector<int64_t>& reserved, bool is_fixed);

 private:
  friend class ImageQueue;

  std::deque<int64_t> shared_, reserved_, refused_;  // refused_: by the engine, for the threads
  const bool is_fixed_;
  bool engine_refuses_ = false;
  bool got_engine_ = false, declined_ = false;  // whether the engine has taken images of this batch, or found that too few remained
  int preparing_ = 0;  // groups that the engine has taken, and not reported
};

// The waiting batches of a GPU, in the order of their calls.
class ImageQueue {
 public:
  struct Group {
    WaitingBatch* batch = nullptr;
    std::vector<int64_t> images;
  };

  void add(WaitingBatch& batch);
  // Removes what is left of a batch, and waits until the engine does not use it any more.
  void remove(WaitingBatch& batch);

  // For the engine, which reports each group when its images have been issued, and ends it when they are decoded. Returns up to `size` images, or none
  // if the threads will have decoded the rest sooner.
  Group take_group(int64_t size);
  // `refused` are images of it that the engine cannot decode. The batch may be gone when this returns.
  void report_group(const Group& group, const std::vector<int64_t>& refused);
  void end_group();
  // The number of batches so far. After take_group() has returned none, it does so until another batch arrives.
  int64_t arrivals();
  void wait_for_arrival(int64_t arrivals);

  // For one of `threads` threads: returns images for it to decode. After as many calls as the batch has images, only those remain that the engine has
  // taken and may still refuse; with `is_last` the call waits for them, and an empty result means that the batch is finished.
  std::vector<int64_t> take_for_thread(WaitingBatch& batch, int threads, bool is_last);
  // To be called by a thread after it has decoded `images` of those that it took.
  void report_decoded(int64_t images);

 private:
  void take_from(std::deque<int64_t>& images, int64_t count, bool from_end, std::vector<int64_t>& taken);
  void close_if_empty(WaitingBatch& batch);
  bool has_images_for_threads() const;
  // How many images threads decode by the time that they have decoded `images` more: whole rounds of all threads, and half of what they have begun.
  double round_up_for_threads(int64_t images) const;
  // How many of these images threads will probably take.
  int64_t estimate_share(const WaitingBatch& batch) const;

  std::mutex mutex_;
  std::condition_variable arrived_, reported_;
  std::list<WaitingBatch*> batches_;
  int64_t arrivals_ = 0;
  int groups_ = 0;  // that the engine has taken and not finished
  int64_t group_size_ = 0;  // 0 without an engine
  int threads_ = 1;
  int64_t in_progress_ = 0;  // images that threads have taken, and not decoded
  int64_t by_threads_ = 0, at_group_ = 0;  // images that threads have decoded: so far, and when the engine began its group
  bool threads_idle_ = true, threads_were_idle_ = true;  // without images: now, and at any time since the engine began its group
  double per_group_ = 0;  // images that threads decode while the engine decodes a group
  int counted_groups_ = 0;  // of which that is the average, up to a limit
};

}  // namespace ndd
