// Draws the charts of the report from the JSON in the page. Colours are variables of
// the style sheet, so dark mode and paper need no second drawing.
(function () {
  'use strict';
  var charts = JSON.parse(document.getElementById('charts').textContent) || [];
  var ink = 'var(--ink)', muted = 'var(--muted)', grid = 'var(--grid)', line = 'var(--line)', panel = 'var(--panel)';
  var font = getComputedStyle(document.body).fontFamily;
  var symbols = ['circle', 'rect', 'triangle', 'diamond', 'circle', 'rect', 'triangle', 'diamond'];
  var dashes = ['solid', 'solid', [6, 3], [2, 3], [8, 3, 2, 3], 'solid', [6, 3], [2, 3]];

  function colour(s) { return s.bad ? 'var(--bad)' : 'var(--s' + (s.backend % 8) + ')'; }

  // short writes a number for an axis or a tip: three digits, as the tables do.
  function short(v) {
    var a = Math.abs(v);
    if (a >= 1e6) { return +(v / 1e6).toPrecision(3) + ' M'; }
    if (a >= 1000) { return Math.round(+v.toPrecision(3)).toLocaleString('en-US'); }
    return String(+v.toPrecision(a >= 1 || a === 0 ? 3 : 2));
  }
  function withUnit(v, unit) { return short(v) + (unit === '/s' ? '/s' : unit ? ' ' + unit : ''); }
  function axisUnit(v, unit) {
    if (v === 0) { return '0'; }
    if (unit === 'ms') {
      if (Math.abs(v) >= 1000) { return short(v / 1000) + ' s'; }
      return Math.abs(v) < 1 ? short(v * 1000) + ' µs' : short(v) + ' ms';
    }
    if (unit === '/s') { return Math.abs(v) >= 1e6 ? short(v) : Math.abs(v) >= 1000 ? short(v / 1000) + ' k' : short(v); }
    return Math.abs(v) >= 10000 && Math.abs(v) < 1e6 ? short(v / 1000) + ' k' : short(v);
  }

  // tip builds its content node by node: a name is a text, whatever is in it.
  function tip(title, rows) {
    var box = document.createElement('div');
    box.className = 'tip';
    if (title) { box.appendChild(document.createElement('b')).textContent = title; }
    rows.forEach(function (row) {
      var p = box.appendChild(document.createElement('div'));
      if (row[0]) {
        var chip = p.appendChild(document.createElement('i'));
        chip.className = 'chip';
        chip.style.background = row[0];
      }
      p.appendChild(document.createTextNode(row[1]));
    });
    return box;
  }

  function logTicks(min, max) {
    var from = Math.floor(Math.log10(min) + 1e-9), to = Math.ceil(Math.log10(max) - 1e-9), ticks = [];
    var steps = to - from <= 2 ? [1, 2, 5] : [1];
    for (var e = from; e <= to; e++) {
      steps.forEach(function (s) { ticks.push(+(s * Math.pow(10, e)).toPrecision(1)); });
    }
    // The axis ends at the ticks next to the data, not at whole decades.
    var low = ticks.filter(function (t) { return t <= min; }).pop() || ticks[0];
    var high = ticks.filter(function (t) { return t >= max; })[0] || ticks[ticks.length - 1];
    if (low === high) { low = low / 2; high = high * 2; }
    return ticks.filter(function (t) { return t >= low && t <= high; });
  }

  function valueAxis(log, values, unit, from0, max) {
    var axis = {
      type: log ? 'log' : 'value', axisLine: { show: false }, axisTick: { show: false },
      splitLine: { show: true, lineStyle: { color: grid } }, minorSplitLine: { show: false },
      axisLabel: { color: muted, fontFamily: font, fontSize: 12, hideOverlap: true, formatter: function (v) { return axisUnit(v, unit); } }
    };
    if (log) {
      var ticks = logTicks(Math.min.apply(null, values), Math.max.apply(null, values));
      axis.min = ticks[0];
      axis.max = ticks[ticks.length - 1];
      axis.axisLabel.customValues = ticks;
      axis.splitLine.show = false;
    } else {
      axis.scale = !from0;
      axis.splitNumber = 4;
      if (max) { axis.max = max; axis.interval = max / 4; }
    }
    return axis;
  }

  // round is the end of an axis, of which each quarter is a short number.
  function round(v) {
    var e = Math.pow(10, Math.floor(Math.log10(v)));
    return +([1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10].filter(function (m) { return m * e >= v; })[0] * e).toPrecision(2);
  }

  // gridLines are those of a logarithmic axis: the library's own know nothing of the
  // labels that were chosen.
  function gridLines(axis, key) {
    return {
      type: 'scatter', data: [], silent: true, z: 0, markLine: {
        silent: true, symbol: 'none', z: 0, label: { show: false }, lineStyle: { color: grid, type: 'solid', width: 1 },
        data: axis.type === 'log' ? axis.axisLabel.customValues.map(function (v) { var at = {}; at[key] = v; return at; }) : []
      }
    };
  }

  function base() {
    return {
      animation: false, textStyle: { fontFamily: font, color: ink },
      tooltip: {
        trigger: 'item', confine: true, backgroundColor: panel, borderColor: line, padding: [8, 12],
        textStyle: { color: ink, fontFamily: font, fontSize: 13 }, extraCssText: 'box-shadow:0 2px 10px rgba(0,0,0,.18)'
      }
    };
  }

  function clip(name, n) { return name.length > n ? name.slice(0, n - 1) + '…' : name; }

  // strip has a line for each backend: a dot a round, a bar for the median, which
  // stands at the right as a number too.
  function strip(c, width) {
    var values = [].concat.apply([], c.series.map(function (s) { return s.values; }));
    var narrow = width < 420;
    var category = {
      type: 'category', inverse: true, data: c.series.map(function (s, i) { return String(i); }),
      axisLine: { show: false }, axisTick: { show: false }, splitLine: { show: false }
    };
    function labels(text, style) {
      return Object.assign({ fontFamily: font, fontSize: 13, color: function (v) { return c.series[+v].bad ? 'var(--bad)' : ink; }, formatter: function (v) { return text(c.series[+v]); } }, style);
    }
    var o = base();
    o.grid = { left: 6, right: 6, top: 4, bottom: 4, outerBoundsMode: 'same', outerBoundsContain: 'axisLabel' };
    o.xAxis = valueAxis(c.logX, c.span || values, c.unit, c.from0, c.max || (c.span && !c.logX && round(c.span[1])));
    o.yAxis = [
      Object.assign({}, category, { axisLabel: labels(function (s) { return clip(s.name, narrow ? 10 : 16); }, {}) }),
      Object.assign({}, category, { position: 'right', axisLabel: labels(function (s) { return s.text; }, { fontWeight: 600 }) })
    ];
    o.series = [];
    c.series.forEach(function (s, i) {
      var low = Math.min.apply(null, s.values), high = Math.max.apply(null, s.values), at = String(i);
      o.series.push({ type: 'line', silent: true, symbol: 'none', data: [[low, at], [high, at]], lineStyle: { color: colour(s), width: 3, opacity: 0.35 } });
      o.series.push({
        type: 'scatter', symbolSize: 9, emphasis: { disabled: true }, itemStyle: { color: colour(s), opacity: 0.55 },
        data: s.values.map(function (v) { return [v, at]; }),
        tooltip: { formatter: function (p) { return tip(s.name, [[colour(s), withUnit(p.value[0], c.unit)], ['', 'median ' + s.text]]); } }
      });
      o.series.push({ type: 'scatter', silent: true, symbol: 'rect', symbolSize: [4, 18], itemStyle: { color: colour(s) }, data: [[s.median, at]] });
    });
    o.series.push(gridLines(o.xAxis, 'xAxis'));
    // An empty one, to which the right axis belongs.
    o.series.push({ type: 'scatter', yAxisIndex: 1, data: [], silent: true });
    return o;
  }

  // lines has a line for each backend over a common axis.
  function lines(c, width) {
    var values = [].concat.apply([], c.series.map(function (s) { return s.points.map(function (p) { return p[1]; }); }));
    var xs = [].concat.apply([], c.series.map(function (s) { return s.points.map(function (p) { return p[0]; }); }));
    var o = base();
    o.grid = { left: 6, right: 18, top: 12, bottom: c.x ? 26 : 6, outerBoundsMode: 'same', outerBoundsContain: 'axisLabel' };
    o.tooltip.trigger = 'axis';
    o.tooltip.axisPointer = { type: 'line', lineStyle: { color: muted, type: 'solid', width: 1 } };
    var at = function (v) { return c.ticks ? c.ticks[Math.round(v)] : short(v); };
    o.tooltip.formatter = function (points) {
      return tip(at(points[0].value[0]) + (c.ticks ? ' of the cases' : ' ' + c.x), points.map(function (p) {
        return [colour(c.series[p.seriesIndex]), c.series[p.seriesIndex].name + '  ' + withUnit(p.value[1], c.unit)];
      }));
    };
    if (c.ticks) {
      o.xAxis = {
        type: 'category', boundaryGap: false, data: c.ticks, axisTick: { show: false }, axisLine: { lineStyle: { color: line } },
        splitLine: { show: true, interval: 0, lineStyle: { color: grid } },
        axisLabel: { color: muted, fontFamily: font, fontSize: 12, interval: width < 420 ? 1 : 0 }
      };
    } else {
      o.xAxis = valueAxis(c.logX, xs, '', false);
      o.xAxis.axisLine = { show: true, onZero: false, lineStyle: { color: line } };
    }
    o.xAxis.name = c.x;
    o.xAxis.nameLocation = 'middle';
    o.xAxis.nameGap = 28;
    o.xAxis.nameTextStyle = { color: muted, fontFamily: font, fontSize: 12 };
    o.yAxis = valueAxis(c.logY, c.span || values, c.unit, true);
    o.series = c.series.map(function (s) {
      var i = s.backend % 8;
      return {
        type: 'line', data: s.points, symbol: symbols[i], symbolSize: 7, showAllSymbol: true, emphasis: { disabled: true },
        lineStyle: { color: colour(s), width: 2, type: dashes[i] }, itemStyle: { color: colour(s) }
      };
    });
    o.series.push(gridLines(o.yAxis, 'yAxis'));
    if (!c.ticks) { o.series.push(gridLines(o.xAxis, 'xAxis')); }
    return o;
  }

  // key draws the line and mark of a series for the legend.
  function key(svg) {
    var i = +svg.dataset.key % 8, c = 'var(--s' + i + ')', shape;
    var dash = Array.isArray(dashes[i]) ? dashes[i].join(' ') : 'none';
    switch (symbols[i]) {
      case 'circle': shape = '<circle cx="13" cy="6" r="3.6"/>'; break;
      case 'rect': shape = '<rect x="9.6" y="2.6" width="6.8" height="6.8"/>'; break;
      case 'triangle': shape = '<path d="M13 2l4 7.4h-8z"/>'; break;
      default: shape = '<path d="M13 1.6l4.4 4.4-4.4 4.4-4.4-4.4z"/>';
    }
    svg.innerHTML = '<path d="M0 6h26" fill="none" stroke="' + c + '" stroke-width="2" stroke-dasharray="' + dash + '"/><g fill="' + c + '">' + shape + '</g>';
  }

  function draw(c) {
    var plot = document.querySelector('#' + c.id + ' .plot');
    plot.style.height = (c.kind === 'strip' ? 44 + 34 * c.series.length : 290) + 'px';
    var chart = echarts.init(plot, null, { renderer: 'svg' });
    var option = function () { return (c.kind === 'strip' ? strip : lines)(c, plot.clientWidth); };
    // The view box lets the style sheet scale the drawing to the paper.
    function box() {
      var svg = plot.querySelector('svg');
      svg.setAttribute('viewBox', '0 0 ' + svg.getAttribute('width') + ' ' + svg.getAttribute('height'));
    }
    chart.setOption(option());
    box();
    new ResizeObserver(function () {
      if (matchMedia('print').matches || !plot.clientWidth || plot.clientWidth === chart.getWidth()) { return; }
      chart.resize();
      chart.setOption(option(), true);
      box();
    }).observe(plot);
  }

  document.querySelectorAll('svg[data-key]').forEach(key);
  charts.forEach(draw);
  document.documentElement.dataset.drawn = charts.length;
})();
