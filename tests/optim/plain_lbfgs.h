// The formulas of torch.optim.LBFGS in float64, on one vector: what optim::LBFGS is compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "ndarray/save.h"

namespace mx::test {

class PlainLbfgs {
 public:
  using Vector = std::vector<double>;
  /// Sets `g` to the gradient and returns the loss.
  using Loss = std::function<double(const Vector& x, Vector& g)>;

  double rate = 1;
  int max_iter = 20, max_eval = 25;
  size_t history = 100;
  bool strong_wolfe = false;

  Vector x;
  int64_t iterations = 0, evaluations = 0;

  /// Goes on from the parameters and the state of another optimiser, which has made a step.
  void resume(const Vector& parameters, const NamedArrays& state) {
    x = parameters;
    d_ = state.find("d")->to_vector<double>();
    old_g_ = state.find("prev_flat_grad")->to_vector<double>();
    t_ = state.find("t")->item<double>();
    scale_ = state.find("H_diag")->item<double>();
    y_.clear();
    s_.clear();
    for (int64_t i = 0; i < state.find("old_dirs")->size(0); ++i) {
      y_.push_back((*state.find("old_dirs"))[i].to_vector<double>());
      s_.push_back((*state.find("old_stps"))[i].to_vector<double>());
    }
  }

  void step(const Loss& function) {
    int64_t used = 0;
    const auto evaluate = [&](const Vector& at) {
      Point p;
      p.g.assign(x.size(), 0.0);
      p.loss = function(at, p.g);
      ++evaluations;
      ++used;
      return p;
    };
    Point now = evaluate(x);
    if (largest(now.g) <= kSmallGradient) return;
    for (int i = 1; i <= max_iter; ++i) {
      const bool first = ++iterations == 1;
      if (first) {
        d_ = now.g;
        for (double& e : d_) e = -e;
      } else {
        remember(now.g);
        direct(now.g);
      }
      old_g_ = now.g;
      double absolute = 0;
      for (const double e : now.g) absolute += std::fabs(e);
      t_ = first ? std::min(1.0, 1 / absolute) * rate : rate;
      const double slope = dot(now.g, d_), loss = now.loss;
      if (slope > -kSmallChange) return;
      if (strong_wolfe) {
        now = search(now, slope, max_eval - used, [&](double t) { return evaluate(moved(t)); });
        t_ = now.t;
        x = moved(t_);
      } else {
        x = moved(t_);
        if (i < max_iter) now = evaluate(x);
      }
      if (i == max_iter || used >= max_eval || largest(now.g) <= kSmallGradient ||
          largest(d_) * t_ <= kSmallChange || std::fabs(now.loss - loss) < kSmallChange)
        return;
    }
  }

 private:
  static constexpr double kSmallGradient = 1e-7, kSmallChange = 1e-9;

  struct Point {
    double t = 0, loss = 0, slope = 0;
    Vector g;
  };

  static double dot(const Vector& a, const Vector& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
  static double largest(const Vector& a) {
    double top = 0;
    for (const double e : a) top = std::max(top, std::fabs(e));
    return top;
  }
  Vector moved(double t) const {
    Vector y = x;
    for (size_t i = 0; i < y.size(); ++i) y[i] += t * d_[i];
    return y;
  }

  void remember(const Vector& g) {
    Vector y(g.size()), s(g.size());
    for (size_t i = 0; i < g.size(); ++i) y[i] = g[i] - old_g_[i], s[i] = d_[i] * t_;
    const double ys = dot(y, s);
    if (ys <= 1e-10) return;
    if (y_.size() == history) y_.erase(y_.begin()), s_.erase(s_.begin());
    y_.push_back(y);
    s_.push_back(s);
    scale_ = ys / dot(y, y);
  }

  void direct(const Vector& g) {
    Vector q = g, a(y_.size());
    for (double& e : q) e = -e;
    for (size_t k = y_.size(); k-- > 0;) {
      a[k] = dot(s_[k], q) / dot(y_[k], s_[k]);
      for (size_t i = 0; i < q.size(); ++i) q[i] -= a[k] * y_[k][i];
    }
    for (double& e : q) e *= scale_;
    for (size_t k = 0; k < y_.size(); ++k) {
      const double b = dot(y_[k], q) / dot(y_[k], s_[k]);
      for (size_t i = 0; i < q.size(); ++i) q[i] += (a[k] - b) * s_[k][i];
    }
    d_ = q;
  }

  static double cubic(const Point& one, const Point& other, double from, double to) {
    const Point &a = one.t <= other.t ? one : other, &b = one.t <= other.t ? other : one;
    const double c = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t),
                 square = c * c - a.slope * b.slope;
    if (square < 0) return (from + to) / 2;
    const double root = std::sqrt(square);
    const double t = b.t - (b.t - a.t) * ((b.slope + root - c) / (b.slope - a.slope + 2 * root));
    return std::min(std::max(t, from), to);
  }

  Point search(const Point& begin, double slope, int64_t most,
               const std::function<Point(double)>& evaluate) const {
    const auto at = [&](double t) {
      Point p = evaluate(t);
      p.t = t;
      p.slope = dot(p.g, d_);
      return p;
    };
    const auto too_high = [&](const Point& p) { return p.loss > begin.loss + 1e-4 * p.t * slope; };
    const auto flat = [&](const Point& p) { return std::fabs(p.slope) <= -0.9 * slope; };
    Point start = begin;
    start.t = 0;
    start.slope = slope;
    Point a = start, b = at(t_);
    int64_t tries = 0;
    for (;; ++tries) {
      if (tries == most) return start.loss <= b.loss ? start : b;
      if (too_high(b) || (tries > 1 && b.loss >= a.loss)) break;
      if (flat(b)) return b;
      if (b.slope >= 0) break;
      const double t = cubic(a, b, b.t + 0.01 * (b.t - a.t), 10 * b.t);
      a = b;
      b = at(t);
    }
    bool slow = false, a_is_low = a.loss <= b.loss;
    for (; tries < most; ++tries) {
      Point &low = a_is_low ? a : b, &high = a_is_low ? b : a;
      const double from = std::min(a.t, b.t), to = std::max(a.t, b.t), margin = 0.1 * (to - from);
      if ((to - from) * largest(d_) < kSmallChange) break;
      double t = cubic(a, b, from, to);
      if (to - t >= margin && t - from >= margin) {
        slow = false;
      } else if (slow || t >= to || t <= from) {
        t = to - t < t - from ? to - margin : from + margin;
        slow = false;
      } else {
        slow = true;
      }
      const Point now = at(t);
      if (too_high(now) || now.loss >= low.loss) {
        high = now;
        a_is_low = a.loss <= b.loss;
        continue;
      }
      const bool done = flat(now);
      if (!done && now.slope * (high.t - low.t) >= 0) high = low;
      low = now;
      if (done) break;
    }
    return a_is_low ? a : b;
  }

  Vector d_, old_g_;
  std::vector<Vector> y_, s_;
  double t_ = 0, scale_ = 1;
};

}  // namespace mx::test
