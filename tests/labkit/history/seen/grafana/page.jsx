// The panels of grafana.json, drawn by Grafana's own libraries from what a real InfluxDB answered.
import React from 'react';
import { createRoot } from 'react-dom/client';
import 'uplot/dist/uPlot.min.css';
import {
  createTheme, dateTime, FieldColorModeId, getDisplayProcessor,
  standardTransformers, standardTransformersRegistry, toDataFrame, transformDataFrame,
} from '@grafana/data';
import {
  GlobalStyles, LegendDisplayMode, PanelChrome, Table, ThemeContext, TimeSeries,
} from '@grafana/ui';

const { board, answers, dark } = window.SHOWN;
const theme = createTheme({ colors: { mode: dark ? 'dark' : 'light' } });
const known = new Map(Object.values(standardTransformers).map((one) => [one.id, one]));
standardTransformersRegistry.setInit(() => [...known.values()].map((one) => ({
  id: one.id, name: one.name, transformation: one, editor: () => null })));
// what the panels' plugins fill in where a dashboard is silent
const DEFAULTS = { color: { mode: FieldColorModeId.PaletteClassic } };
const CUSTOM = { drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0,
  pointSize: 5, axisPlacement: 'auto', gradientMode: 'none', showPoints: 'auto' };

function aliased(alias, tags) {
  return alias.replace(/\$tag_(\w+)/g, (_, tag) => tags[tag]);
}

// frames of an InfluxQL answer: a frame a series, or one table for all, as the data source makes them
function framesOf(target, series) {
  if (target.resultFormat === 'table') {
    const tags = Object.keys(series[0].tags);
    const names = [series[0].columns[0], ...tags, ...series[0].columns.slice(1)];
    const rows = series.flatMap((s) => s.values.map(([at, ...rest]) =>
      [at / 1e6, ...tags.map((t) => s.tags[t]), ...rest]));
    return [toDataFrame({ refId: target.refId, fields: names.map((name, k) => ({
      name: k ? name : 'Time', type: k === 0 ? 'time' : typeof rows[0][k], config: {},
      values: rows.map((row) => row[k]) })) })];
  }
  return series.map((s) => toDataFrame({ refId: target.refId, name: aliased(target.alias, s.tags),
    fields: [
      { name: 'Time', type: 'time', config: {}, values: s.values.map((v) => v[0] / 1e6) },
      { name: 'Value', type: 'number', labels: s.tags, values: s.values.map((v) => v[1]),
        config: { displayNameFromDS: aliased(target.alias, s.tags) } }] }));
}

function transformed(panel, frames) {
  let out = null;
  transformDataFrame(panel.transformations || [], frames).subscribe((data) => { out = data; });
  return out;
}

function Panel({ panel, series }) {
  const width = 1180, height = 30 * panel.gridPos.h;
  const { custom, ...config } = (panel.fieldConfig || {}).defaults || {};
  const data = transformed(panel, framesOf(panel.targets[0], series));
  data.forEach((frame, seriesIndex) => frame.fields.forEach((field) => {
    if (field.type === 'number') {
      field.config = { ...DEFAULTS, ...config, ...field.config };
      field.state = { seriesIndex };
    }
    field.config.custom = { ...CUSTOM, ...custom };
    field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
  }));
  const at = series.flatMap((s) => s.values.map((v) => v[0] / 1e6));
  const range = { from: dateTime(Math.min(...at)), to: dateTime(Math.max(...at)) };
  return <PanelChrome title={panel.title} width={width} height={height}>
    {(w, h) => panel.type === 'timeseries'
      ? <TimeSeries frames={data} structureRev={1} width={w} height={h} timeZone="utc"
        timeRange={{ ...range, raw: range }} replaceVariables={(text) => text}
        legend={{ displayMode: LegendDisplayMode.List, showLegend: true, placement: 'bottom',
          calcs: [] }} />
      : <Table data={data[0]} width={w} height={h} />}
  </PanelChrome>;
}

createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ background: theme.colors.background.canvas, color: theme.colors.text.primary,
      padding: 10, fontFamily: theme.typography.fontFamily }}>
      <h1 style={{ fontSize: 20 }}>{board.title}</h1>
      {board.panels.map((panel) => <div key={panel.id} style={{ marginBottom: 8 }}>
        <Panel panel={panel} series={answers[panel.title]} /></div>)}
    </div>
  </ThemeContext.Provider>);
