// The charts of influxdb.yml, drawn by the plot library of InfluxDB 2's own pages.
import React from 'react';
import ReactDOM from 'react-dom';
import { fromFlux, NINETEEN_EIGHTY_FOUR, Plot, SimpleTableLayer, timeFormatter } from '@influxdata/giraffe';

const { charts, answers } = window.SHOWN;

function Chart({ chart }) {
  const csv = answers[chart.name];
  let config;
  if (chart.kind === 'Table') {
    config = { fluxResponse: csv, layers: [{ type: 'simple table', showAll: true }] };
  } else {
    const { table, fluxGroupKeyUnion } = fromFlux(csv);
    config = { table, valueFormatters: {
      [chart.xCol]: timeFormatter({ timeZone: 'UTC', format: 'MM-DD HH:mm' }),
      [chart.yCol]: (y) => `${y.toFixed(0)}${chart.axes[1].suffix}` },
      layers: [{ type: chart.geom, x: chart.xCol, y: chart.yCol,
        fill: fluxGroupKeyUnion, interpolation: 'linear', colors: NINETEEN_EIGHTY_FOUR,
        lineWidth: 1 }] };
  }
  return <section><h2>{chart.name}</h2>
    <div style={{ width: 1180, height: 90 * chart.height }}><Plot config={config} /></div></section>;
}

ReactDOM.render(<div style={{ background: '#07070e', color: '#f1f1f3', padding: 10,
  fontFamily: 'sans-serif' }}>
  {charts.map((chart) => <Chart key={chart.name} chart={chart} />)}</div>,
document.getElementById('root'));
