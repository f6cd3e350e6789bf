"use strict";
fetch("/api/queues").then((answer) => answer.json()).then((queues) => {
  document.getElementById("queues").textContent = JSON.stringify(queues, null, 2);
});
