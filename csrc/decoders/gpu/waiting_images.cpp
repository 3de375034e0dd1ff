// SPDX-License-Identifier: Apache-2.0
// All state is under one mutex, which is taken once for a group of images. `per_group_` is the running mean of how many images the threads decode
// while the engine decodes one group.
#include "decoders/gpu/waiting_images.h"

#include "ndd/python_interface.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace ndd {

namespace {

// Images that a thread takes while many are waiting: each call of the codec synchronizes streams. Near the end threads take single ones.
constexpr int64_t kMaxTogether = 8;

// The latest groups over which the images of threads are averaged: threads may decode for longer than the engine for several groups.
constexpr int kCountedGroups = 8;
// Where threads had no images left, they would have decoded more. If the engine gets nothing for that reason, the count is forgotten slowly.
constexpr double kIdleFactor = 1.25, kForgotten = 31.0 / 32;

}  // namespace

WaitingBatch::WaitingBatch(int64_t images, const std::vector<int64_t>& reserved, bool is_fixed)
    : reserved_(reserved.begin(), reserved.end()), is_fixed_(is_fixed) {
  std::vector<char> is_reserved(static_cast<size_t>(images), 0);
  for (const int64_t i : reserved) is_reserved[static_cast<size_t>(i)] = 1;
  for (int64_t i = 0; i < images; ++i) {
    if (!is_reserved[static_cast<size_t>(i)]) shared_.push_back(i);
  }
}

void ImageQueue::add(WaitingBatch& batch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  batches_.push_back(&batch);
  // A batch whose images are all reserved for the engine gives the threads nothing to do.
  threads_idle_ = threads_idle_ && !has_images_for_threads();
  ++arrivals_;
  arrived_.notify_all();
}

void ImageQueue::remove(WaitingBatch& batch) {
  std::unique_lock<std::mutex> lock(mutex_);
  batches_.remove(&batch);
  // The engine still points at the batch while it prepares a group of it; the caller frees it afterwards.
  reported_.wait(lock, [&] { return batch.preparing_ == 0; });
}

void ImageQueue::take_from(std::deque<int64_t>& images, int64_t count, bool from_end, std::vector<int64_t>& taken) {
  count = std::min(count, static_cast<int64_t>(images.size()));
  const auto begin = from_end ? images.end() - count : images.begin();
  taken.assign(begin, begin + count);
  images.erase(begin, begin + count);
}

void ImageQueue::close_if_empty(WaitingBatch& batch) {
  if (!batch.shared_.empty() || !batch.reserved_.empty()) return;
  const auto found = std::find(batches_.begin(), batches_.end(), &batch);
  if (found == batches_.end()) return;
  batches_.erase(found);
  if (!has_images_for_threads()) threads_idle_ = threads_were_idle_ = true;
  // The count of an engine that gets no images would never change. It is lowered, so the engine is tried again.
  if (batch.declined_ && !batch.got_engine_) per_group_ *= kForgotten;
}

bool ImageQueue::has_images_for_threads() const {
  return std::any_of(batches_.begin(), batches_.end(), [](const WaitingBatch* batch) { return !batch->shared_.empty(); });
}

// How many images the threads will have decoded when these are done: the last round is full, and of those in progress half are left on average.
double ImageQueue::round_up_for_threads(int64_t images) const {
  const int64_t rounds = (images + threads_ - 1) / threads_;
  return static_cast<double>(rounds * threads_) + static_cast<double>(in_progress_) / 2;
}

// Of the images left in a batch, those that the threads will take: while the engine decodes group_size_, they decode per_group_.
int64_t ImageQueue::estimate_share(const WaitingBatch& batch) const {
  const auto left = static_cast<int64_t>(batch.shared_.size());
  // Without an engine, or before its first group, threads count on decoding all of it.
  if (group_size_ == 0 || batch.is_fixed_ || batch.engine_refuses_) return left;
  return static_cast<int64_t>(static_cast<double>(left) * per_group_ / (per_group_ + static_cast<double>(group_size_)));
}

ImageQueue::Group ImageQueue::take_group(int64_t size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // The first batch that ends sooner with the engine's help: the group is decoded before the threads would have decoded the batch. If there is none,
  // the last of several batches: the threads have another one to go on with.
  const double meanwhile = per_group_ * (groups_ + 1);
  int64_t before = 0, waiting = 0;
  WaitingBatch *chosen = nullptr, *rest = nullptr, *last = nullptr;
  for (WaitingBatch* batch : batches_) {
    const auto left = static_cast<int64_t>(batch->shared_.size());
    waiting += left > 0;
    // Reserved images are for the engine alone: they come before any estimate.
    if (!batch->reserved_.empty()) {
      chosen = batch;
      break;
    }
    if (left > 0 && !batch->is_fixed_ && !batch->engine_refuses_) {
      const bool helps = round_up_for_threads(before + left) > meanwhile;
      if (left >= size) {
        last = batch;
        if (helps) {
          chosen = batch;
          break;
        }
      } else if (helps && batch->got_engine_ && !rest) {
        rest = batch;
      }
    }
    before += left;
  }
  if (!chosen && waiting > 1) chosen = last;
  if (!chosen) chosen = rest;  // takes as long as a whole group, but nothing else is left
  if (!chosen) {
    if (last) last->declined_ = true;
    return {};
  }
  Group group{chosen, {}};
  take_from(chosen->reserved_.empty() ? chosen->shared_ : chosen->reserved_, size, true, group.images);
  chosen->got_engine_ = true;
  group_size_ = size;
  ++chosen->preparing_;
  // The engine starts after a pause: what threads decoded before it does not belong to this group.
  if (groups_++ == 0) {
    at_group_ = by_threads_;
    threads_were_idle_ = threads_idle_;
  }
  close_if_empty(*chosen);
  return group;
}

void ImageQueue::report_group(const Group& group, const std::vector<int64_t>& refused) {
  const std::lock_guard<std::mutex> lock(mutex_);
  WaitingBatch& batch = *group.batch;
  batch.refused_.insert(batch.refused_.end(), refused.begin(), refused.end());
  if (refused.size() == group.images.size()) {
    // Probably all files of the batch are of that kind.
    batch.engine_refuses_ = true;
    batch.shared_.insert(batch.shared_.end(), batch.reserved_.begin(), batch.reserved_.end());
    batch.reserved_.clear();
    --groups_;
    group_size_ = 0;
  }
  --batch.preparing_;
  reported_.notify_all();
}

void ImageQueue::end_group() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --groups_;
  const auto decoded = static_cast<double>(by_threads_ - at_group_);
  if (!threads_were_idle_) {
    // A running average that becomes an exponential one after kCountedGroups groups: files of another size soon count.
    counted_groups_ = std::min(counted_groups_ + 1, kCountedGroups);
    per_group_ += (decoded - per_group_) / counted_groups_;
  } else if (in_progress_ == 0) {
    per_group_ = std::max(per_group_, round_up_for_threads(by_threads_ - at_group_) * kIdleFactor);  // they would have decoded more
  }
  at_group_ = by_threads_;
  threads_were_idle_ = threads_idle_;
}

int64_t ImageQueue::arrivals() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return arrivals_;
}

void ImageQueue::wait_for_arrival(int64_t arrivals) {
  std::unique_lock<std::mutex> lock(mutex_);
  arrived_.wait(lock, [&] { return arrivals_ != arrivals; });
}

std::vector<int64_t> ImageQueue::take_for_thread(WaitingBatch& batch, int threads, bool is_last) {
  std::unique_lock<std::mutex> lock(mutex_);
  std::vector<int64_t> taken;
  const auto has_images = [&] { return !batch.refused_.empty() || !batch.shared_.empty(); };
  // The last thread of a batch must not leave while the engine may still refuse images: they would have no decoder.
  if (is_last) reported_.wait(lock, [&] { return has_images() || (batch.preparing_ == 0 && batch.reserved_.empty()); });
  if (!batch.refused_.empty()) {
    take_from(batch.refused_, 1, false, taken);
  } else {
    // A fair share of those that the threads will probably take. They go on with the next batches, but a few should not have all of this one.
    threads_ = std::max(threads, 1);
    int64_t share = 0;
    for (const WaitingBatch* waiting : batches_) share += estimate_share(*waiting);
    const int64_t most = std::clamp<int64_t>(estimate_share(batch) / threads_, kMaxTogether / 2, kMaxTogether);
    take_from(batch.shared_, std::clamp<int64_t>(share / (2 * threads_), 1, most), false, taken);
  }
  in_progress_ += static_cast<int64_t>(taken.size());
  close_if_empty(batch);
  return taken;
}

void ImageQueue::report_decoded(int64_t images) {
  const std::lock_guard<std::mutex> lock(mutex_);
  in_progress_ -= images;
  by_threads_ += images;
}

}  // namespace ndd

// For a test, which simulates decoders of given speeds.
NDD_EXPORT(keep, void*, ndd_image_queue, ()) { return new ndd::ImageQueue; }
NDD_EXPORT(keep, void, ndd_image_queue_release, (void* queue)) { delete static_cast<ndd::ImageQueue*>(queue); }
NDD_EXPORT(keep, void*, ndd_waiting_batch, (void* queue, int64_t images, const int64_t* reserved, int64_t reserved_count, int is_fixed)) {
  const std::vector<int64_t> of_engine(reserved, reserved + reserved_count);
  auto* batch = new ndd::WaitingBatch(images, of_engine, is_fixed != 0);
  static_cast<ndd::ImageQueue*>(queue)->add(*batch);
  return batch;
}
NDD_EXPORT(keep, void, ndd_waiting_batch_release, (void* queue, void* batch)) {
  static_cast<ndd::ImageQueue*>(queue)->remove(*static_cast<ndd::WaitingBatch*>(batch));
  delete static_cast<ndd::WaitingBatch*>(batch);
}
// These fill `taken` and return its length.
NDD_EXPORT(keep, int64_t, ndd_take_for_thread, (void* queue, void* batch, int threads, int64_t* taken)) {
  const auto images = static_cast<ndd::ImageQueue*>(queue)->take_for_thread(*static_cast<ndd::WaitingBatch*>(batch), threads, false);
  std::copy(images.begin(), images.end(), taken);
  return static_cast<int64_t>(images.size());
}
NDD_EXPORT(keep, void, ndd_report_decoded, (void* queue, int64_t images)) { static_cast<ndd::ImageQueue*>(queue)->report_decoded(images); }
NDD_EXPORT(keep, int64_t, ndd_take_group, (void* queue, int64_t size, void** batch, int64_t* taken)) {
  const auto group = static_cast<ndd::ImageQueue*>(queue)->take_group(size);
  *batch = group.batch;
  std::copy(group.images.begin(), group.images.end(), taken);
  return static_cast<int64_t>(group.images.size());
}
NDD_EXPORT(keep, void, ndd_report_group, (void* queue, void* batch, const int64_t* images, int64_t count, const int64_t* refused, int64_t refusals)) {
  static_cast<ndd::ImageQueue*>(queue)->report_group({static_cast<ndd::WaitingBatch*>(batch), {images, images + count}},
                                                     {refused, refused + refusals});
}
NDD_EXPORT(keep, void, ndd_end_group, (void* queue)) { static_cast<ndd::ImageQueue*>(queue)->end_group(); }
